// A day in SUMO, as `PlainDay` of day.py keeps it, compiled: the same questions to SUMO, the same
// answers to the bit, without Python's share of the time and of the caches.
//
// `Fixed` and `Visit` are laid out as in native.py. What SUMO throws becomes the return
// value -1 and a `message`.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <libsumo/Edge.h>
#include <libsumo/Person.h>
#include <libsumo/Simulation.h>
#include <libsumo/Vehicle.h>

using libsumo::Edge;
using libsumo::Person;
using libsumo::Simulation;
using libsumo::Vehicle;

extern "C" {

struct Fixed {  // what the city and the level of demand fix
    int32_t trips, services, stops, places, rate_bins, rate_bin_s;
    int32_t capacity, min_dwell_s, exchange_s;
    const char* const* bus;       // of a trip
    const char* const* road;      // of a stop
    const int32_t* service;       // of a trip
    const int32_t* first_stop;    // where a service's places begin, and where the last one's end
    const int32_t* stop;          // of a place
    const int32_t* first_visit;   // of a trip, and where the last one's end
    const double* target_s;       // trip, (ahead, behind)
    const double* rate_per_s;     // place, bin
    const int32_t* leg_start;     // of a person, and where the last one's end
    const int32_t* leg_board;
    const int32_t* leg_alight;
    const int32_t* leg_carriers;
    const uint8_t* carries;       // set of carriers, service
};

struct Tally {  // as in day.py; charging is left to Python
    int64_t waiting_s, riding_s, charged;
    int64_t now_s, departed, completed, riding, teleports, denied, trips_completed, trip_duration_s;
};

struct Visit {
    int32_t trip, position, arrival_s, departure_s, load, alighted, boarded, left_behind;
    int32_t base_dwell_s;
    double hold_s;
};

}  // extern "C"

namespace {

constexpr int FEATURES = 16;

struct AtStop {  // a bus standing at a stop: what is settled on arrival
    int position, arrival_s, load, alighting, base_dwell_s, waiting;
    double hold_s;
};

struct Day {
    Fixed fixed;
    Tally* tally;
    int32_t* asking;  // all who asked so far, in order, and what they were told
    double* raw;
    int64_t decisions = 0;
    bool asked = false;
    std::vector<std::string> bus, road;
    std::unordered_map<std::string, int> trip_of;
    std::vector<int> load, standing, arrived, gap_ahead;
    std::vector<AtStop> at;
    std::vector<std::unordered_map<int, int>> due;  // of a trip, by stop to alight at
    std::vector<int> visited_s, last_s, position, ahead, behind, tail;
    std::vector<Visit> visits;
    int64_t moving = 0;  // people on board of buses that are not at a stop
    std::string message;

    Day(const Fixed& f, Tally* t, int32_t* asking_out, double* raw_out)
        : fixed(f), tally(t), asking(asking_out), raw(raw_out), bus(f.bus, f.bus + f.trips),
          road(f.road, f.road + f.stops), load(f.trips), at(f.trips), due(f.trips),
          visited_s(f.first_visit[f.trips], -1), last_s(f.places, -1), position(f.trips, -1),
          ahead(f.trips, -1), behind(f.trips, -1), tail(f.services, -1) {
        for (int trip = 0; trip < f.trips; trip++) trip_of[bus[trip]] = trip;
        visits.reserve(f.first_visit[f.trips]);
    }

    int64_t waiting() const { return tally->departed - tally->completed - tally->riding; }

    int place(int trip) const { return fixed.first_stop[fixed.service[trip]] + position[trip]; }

    bool at_last_stop(int trip) const {
        return place(trip) + 1 == fixed.first_stop[fixed.service[trip] + 1];
    }

    int advance(int horizon_s) {
        if (asked) pass();
        asked = false;
        while (tally->now_s < horizon_s) {
            Simulation::step();
            if (const int count = look(tally->now_s)) {
                asked = true;
                return count;
            }
            pass();
        }
        return 0;
    }

    void pass() {
        tally->waiting_s += waiting();
        tally->riding_s += tally->riding;
        tally->now_s++;
    }

    int look(int now) {
        tally->departed += Simulation::getDepartedPersonNumber();
        tally->completed += Simulation::getArrivedPersonNumber();
        tally->teleports += Simulation::getStartingTeleportNumber();
        arrived.clear();
        if (Simulation::getStopStartingVehiclesNumber() > 0) {
            for (const auto& id : Simulation::getStopStartingVehiclesIDList()) {
                const int trip = trip_of.at(id);
                arrived.push_back(trip);
                standing.push_back(trip);
                moving -= load[trip];
            }
        }
        tally->riding = moving;
        for (int trip : standing) tally->riding += Vehicle::getPersonNumber(bus[trip]);
        if (Simulation::getStopEndingVehiclesNumber() > 0) {
            for (const auto& id : Simulation::getStopEndingVehiclesIDList()) {
                leave(trip_of.at(id), now);
            }
        }
        return arrived.empty() ? 0 : arrive(now);
    }

    // Note the arrivals of this step; write down who asks for a hold, and what they are told.
    int arrive(int now) {
        std::sort(arrived.begin(), arrived.end(), [this](int a, int b) {
            return std::make_pair(fixed.service[a], a) < std::make_pair(fixed.service[b], b);
        });
        gap_ahead.clear();
        for (int trip : arrived) gap_ahead.push_back(record_arrival(trip, now));
        for (int trip : arrived) {
            if (at_last_stop(trip)) record_finish(trip);
        }
        int count = 0;
        for (size_t i = 0; i < arrived.size(); i++) {
            const int trip = arrived[i];
            observe(trip, now);
            if (at_last_stop(trip)) {
                tally->trips_completed++;
                tally->trip_duration_s += now - visited_s[fixed.first_visit[trip]];
            } else {
                double* row = raw + FEATURES * decisions;
                describe(trip, gap_ahead[i], headway_behind(trip, now), now, row);
                asking[decisions++] = trip;
                count++;
            }
        }
        return count;
    }

    // Who will alight and who is waiting, as of the moment the bus stopped: SUMO exchanges the first
    // passenger within the step of the arrival.
    void observe(int trip, int now) {
        const int stop = fixed.stop[place(trip)], before = load[trip];
        const int boarded = std::max(Vehicle::getPersonNumber(bus[trip]) - before, 0);
        const auto leaving = due[trip].find(stop);
        const int alighting = leaving == due[trip].end() ? 0 : leaving->second;
        if (alighting) due[trip].erase(leaving);
        const int waiting = boarded + eligible(fixed.service[trip], stop);
        const int boarding = std::min(waiting, fixed.capacity - before + alighting);
        const int dwell = std::max(fixed.min_dwell_s, fixed.exchange_s * (alighting + boarding));
        at[trip] = {position[trip], now, before, alighting, dwell, waiting, 0.0};
    }

    // People at the stop now whose leg this service can carry. SUMO lists first legs under the road
    // alone, and those on board a bus there as well.
    int eligible(int service, int stop) const {
        int count = 0;
        for (const auto& id : Edge::getLastStepPersonIDs(road[stop])) {
            const int person = std::stoi(id.substr(1));
            bool some = false;
            for (int leg = fixed.leg_start[person]; leg < fixed.leg_start[person + 1]; leg++) {
                some = some || boards(leg, service, stop);
            }
            count += some && Person::getVehicle(id).empty() && boards(leg_of(id), service, stop);
        }
        return count;
    }

    bool boards(int leg, int service, int stop) const {
        return leg >= 0 && fixed.leg_board[leg] == stop &&
               fixed.carries[fixed.leg_carriers[leg] * fixed.services + service];
    }

    // The leg that someone is on, or -1: known, but for those who change.
    int leg_of(const std::string& id) const {
        const int person = std::stoi(id.substr(1));
        const int first = fixed.leg_start[person], end = fixed.leg_start[person + 1];
        if (end - first == 1) return first;
        const int left = Person::getRemainingStages(id);
        return left < 1 || left > end - first ? -1 : end - left;
    }

    // The sixteen features, in the order of RAW_FEATURES.
    void describe(int trip, int gap, int gap_behind, int now, double* row) const {
        const AtStop& here = at[trip];
        const int bin = std::min(now / fixed.rate_bin_s, fixed.rate_bins - 1);
        const double features[FEATURES] = {
            double(fixed.service[trip]), double(here.position), double(now),
            double(std::max(gap, 0)), double(std::max(gap_behind, 0)),
            fixed.target_s[2 * trip], fixed.target_s[2 * trip + 1],
            double(here.waiting), double(here.load),
            fixed.rate_per_s[place(trip) * fixed.rate_bins + bin], double(here.base_dwell_s),
            double(gap >= 0), double(gap_behind >= 0), double(fixed.capacity),
            double(waiting()), double(tally->riding)};
        std::copy(features, features + FEATURES, row);
    }

    void leave(int trip, int now) {
        const auto stood = std::find(standing.begin(), standing.end(), trip);
        if (stood == standing.end()) throw std::out_of_range(bus[trip] + " leaves no stop");
        standing.erase(stood);
        const AtStop here = at[trip];
        const int now_on_board = load[trip] = Vehicle::getPersonNumber(bus[trip]);
        const int boarded = now_on_board - here.load + here.alighting;
        moving += now_on_board;
        if (boarded > 0) note_boarded(trip, boarded);
        int left_behind = 0;
        if (now_on_board >= fixed.capacity) {
            left_behind = eligible(fixed.service[trip], fixed.stop[place(trip)]);
        }
        tally->denied += left_behind;
        visits.push_back({trip, here.position, here.arrival_s, now, here.load, here.alighting,
                          boarded, left_behind, here.base_dwell_s, here.hold_s});
    }

    // Count where the people who have just boarded will alight. SUMO lists them last.
    void note_boarded(int trip, int boarded) {
        const auto people = Vehicle::getPersonIDList(bus[trip]);
        for (size_t i = std::max<int>(people.size() - boarded, 0); i < people.size(); i++) {
            const int leg = leg_of(people[i]);
            if (leg < 0) throw std::out_of_range(people[i] + " is on no ride");
            due[trip][fixed.leg_alight[leg]]++;
        }
    }

    // -- who runs ahead and behind: `Headways` of control/event.py --------------------------------

    int record_arrival(int trip, int now) {
        if (position[trip] >= 0 && at_last_stop(trip)) {
            throw std::out_of_range(bus[trip] + " stops after its last stop");
        }
        const int service = fixed.service[trip], stop = ++position[trip];
        if (stop == 0) {
            ahead[trip] = tail[service];
            if (tail[service] >= 0) behind[tail[service]] = trip;
            tail[service] = trip;
        }
        visited_s[fixed.first_visit[trip] + stop] = now;
        for (int other = ahead[trip]; other >= 0 && position[other] < stop; other = ahead[trip]) {
            overtake(service, other, trip);
        }
        const int before = std::exchange(last_s[place(trip)], now);
        return before >= 0 ? now - before : -1;
    }

    void overtake(int service, int front, int rear) {
        const int beyond = ahead[front], after = behind[rear];
        ahead[rear] = beyond;
        behind[rear] = front;
        ahead[front] = rear;
        behind[front] = after;
        if (beyond >= 0) behind[beyond] = rear;
        (after >= 0 ? ahead[after] : tail[service]) = front;
    }

    void record_finish(int trip) {
        const int front = ahead[trip], rear = behind[trip];
        if (front >= 0) behind[front] = rear;
        (rear >= 0 ? ahead[rear] : tail[fixed.service[trip]]) = front;
        ahead[trip] = behind[trip] = -1;
    }

    int headway_behind(int trip, int now) const {
        const int follower = behind[trip];
        if (follower < 0) return -1;
        const int mine = fixed.first_visit[trip], its = position[follower];
        const int gap = visited_s[fixed.first_visit[follower] + its] - visited_s[mine + its];
        return its < position[trip] ? std::max(gap, now - visited_s[mine + its + 1]) : gap;
    }
};

}  // namespace

extern "C" {

Day* day_begin(const Fixed* fixed, Tally* tally, int32_t* asking, double* raw) {
    return new Day(*fixed, tally, asking, raw);
}

void day_end(Day* day) { delete day; }

// Step SUMO until buses ask for a hold: how many ask, 0 at the horizon, or -1.
int day_advance(Day* day, int horizon_s) {
    try {
        return day->advance(horizon_s);
    } catch (const std::exception& error) {
        day->message = error.what();
        return -1;
    }
}

const char* day_message(const Day* day) { return day->message.c_str(); }

// Note a bus's hold; the dwell that it comes on top of.
int day_hold(Day* day, int trip, double hold_s) {
    day->at[trip].hold_s = hold_s;
    return day->at[trip].base_dwell_s;
}

const Visit* day_visits(const Day* day, int64_t* count) {
    *count = day->visits.size();
    return day->visits.data();
}

}  // extern "C"
