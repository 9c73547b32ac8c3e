"""A small folder of TIDES tables, written by hand: two trips of a route on one day, three stops."""

import gzip
from pathlib import Path

TRIPS = """\
service_date,trip_id_performed,vehicle_id,trip_id_scheduled,route_id,direction_id
2026-03-02,a,7,s1,1,0
2026-03-02,b,8,s2,1,0
"""
VISITS = """\
service_date,trip_id_performed,trip_stop_sequence,stop_id,actual_arrival_time,\
actual_departure_time,boarding_1,alighting_1,departure_load
2026-03-02,a,1,X,2026-03-02T08:00:00+01:00,2026-03-02T08:00:20+01:00,3,0,3
2026-03-02,a,2,Y,2026-03-02T08:02:00+01:00,2026-03-02T08:02:10+01:00,1,1,3
2026-03-02,a,3,Z,2026-03-02T08:05:00+01:00,,0,3,0
2026-03-02,b,1,X,2026-03-02T08:10:00+01:00,2026-03-02T08:10:20+01:00,2,0,2
2026-03-02,b,2,Y,2026-03-02T08:12:00+01:00,2026-03-02T08:12:10+01:00,0,1,1
2026-03-02,b,3,Z,2026-03-02T08:15:00+01:00,,0,1,0
"""
STOPS = """\
stop_id,stop_name,stop_lat,stop_lon
X,Station,46.2000,6.1000
Y,Market,46.2050,6.1000
Z,Harbour,46.2100,6.1000
"""
EVENTS = """\
passenger_event_id,service_date,event_timestamp,trip_id_performed,trip_stop_sequence,event_type,\
vehicle_id,event_count
1,2026-03-02,2026-03-02T08:00:05+01:00,a,1,Passenger boarded,7,2
2,2026-03-02,2026-03-02T08:00:09+01:00,a,1,Passenger boarded,7,
3,2026-03-02,2026-03-02T08:05:01+01:00,a,3,Passenger alighted,7,3
4,2026-03-02,2026-03-02T08:05:02+01:00,a,3,Door closed,7,
"""
LOCATIONS = """\
location_ping_id,service_date,event_timestamp,vehicle_id,latitude,longitude,speed
1,2026-03-02,2026-03-02T08:00:05+01:00,7,46.2,6.1,3.5
2,2026-03-02,2026-03-02T08:00:35+01:00,7,46.2,6.1,99
"""
ROUTE_STOPS = """\
route_id,direction_id,stop_id,shape_dist_traveled_m
1,0,X,0
1,0,Y,700
1,0,Z,1400
"""
TABLES = {
    "stop_visits.csv": VISITS,
    "trips_performed.csv": TRIPS,
    "stops.csv": STOPS,
    "passenger_events.csv": EVENTS,
    "vehicle_locations.csv": LOCATIONS,
    "route_stops.csv": ROUTE_STOPS,
}


def write_tides(folder: Path, packed: bool = False, **changed: str) -> Path:
    """Write the tables, some of them changed; `packed` writes them with gzip."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in TABLES.items():
        content = changed.get(name.removesuffix(".csv"), text).encode()
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder
