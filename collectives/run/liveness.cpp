// SPDX-License-Identifier: MIT
#include "collectives/run/liveness.h"

#include <algorithm>

namespace lockstep::collectives {
namespace {

using std::chrono::milliseconds;

constexpr int kGiveWay = 4;               // times `answer`
constexpr int kQuestions = 4;             // questions per `answer`
constexpr milliseconds kBetweenLooks{5};  // between polls of questions

}  // namespace

Liveness::Liveness(int rank, Team& team, Transport* transport, milliseconds answer)
    : rank_(rank), team_(team), transport_(transport), answer_(answer) {}

void Liveness::wait(int plan, Time now) {
  team_.note_waiting(plan, rank_, now);
  if (now - looked_ > answer_ / kQuestions) awake_ = now;
  looked_ = now;
  if (transport_ == nullptr || now - attended_ < kBetweenLooks) return;
  attended_ = now;
  transport_->progress();  // else nobody polls without messages in flight
  while (const auto said = transport_->receive_control()) {
    const bool known = said->plan >= 0 && std::size_t(said->plan) < team_.plans();
    if (said->kind == Transport::ControlKind::kAnswer) {
      Peer& peer = peers_[said->peer];
      peer.heard = now;
      if (known) peer.heard_in[said->plan] = now;
      continue;
    }
    question_ = said->plan, questioned_ = now;
    const bool there = known && team_.waits(said->plan, rank_, now, answer_);
    transport_->send_control(said->peer, Transport::ControlKind::kAnswer,
                             there ? said->plan : plan);
  }
}

std::optional<int> Liveness::asked(Time now) const {
  if (question_ && now - questioned_ <= answer_) return question_;
  return team_.asked(rank_, now, answer_);
}

bool Liveness::waits(int rank, Time now) const {
  if (rank == rank_) return true;
  if (team_.is_local(rank)) return team_.waits(rank, now, answer_);
  const auto peer = peers_.find(rank);
  return peer != peers_.end() && peer->second.heard != Time{} &&
         now - peer->second.heard <= answer_;
}

bool Liveness::waits_in(int plan, int rank, Time now) const {
  if (rank == rank_) return true;
  if (team_.is_local(rank)) return team_.waits(plan, rank, now, answer_);
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return false;
  const auto heard = peer->second.heard_in.find(plan);
  return heard != peer->second.heard_in.end() && now - heard->second <= answer_;
}

std::vector<int> Liveness::waiting(int plan, Time now) const {
  std::vector<int> all;
  for (const int rank : team_.local())
    if (waits_in(plan, rank, now)) all.push_back(rank);
  for (const auto& [rank, peer] : peers_)
    if (waits_in(plan, rank, now)) all.push_back(rank);
  std::sort(all.begin(), all.end());
  return all;
}

// Asks a peer again, for as long as this is called: a message may be lost, and answers expire.
// Returns false if a whole `answer` has passed without one.
bool Liveness::answers(int peer, int plan, Time now) {
  Peer& p = peers_[peer];
  const bool begins = now - p.asked > answer_ || p.heard >= p.first_asked;
  if (begins && now - p.heard <= answer_ / kQuestions) return true;
  if (begins) p.first_asked = now;
  if (begins || now - p.asked >= answer_ / kQuestions) {
    transport_->send_control(peer, Transport::ControlKind::kQuestion, plan);
    p.asked = now;
  }
  return waits(peer, now) || now - p.first_asked < answer_;
}

std::vector<int> Liveness::silent(int plan, const std::vector<int>& missing, Time since, Time now) {
  if (now - since >= kGiveWay * answer_) return missing;
  // If this rank was kept from running, perhaps with its whole host, the others answer in a moment.
  if (now - awake_ < answer_) return {};
  std::vector<int> named;
  for (const int rank : missing) {
    if (!team_.is_local(rank)) {
      if (!answers(rank, plan, now)) named.push_back(rank);
    } else if (waits(rank, now)) {
      team_.ask(rank, plan, now);
    } else {
      named.push_back(rank);
    }
  }
  return named;
}

}  // namespace lockstep::collectives
