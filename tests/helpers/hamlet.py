"""A whole city written by hand, small enough to count its rows: one street of three blocks, a
service each way, four trips, three people; and how to spoil it and hear why it is refused."""

import csv
import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from evenline.city.tables import load_city
from evenline.support.errors import InputError

HAMLET = {
    "nodes.csv": """\
node_id,x_m,y_m,signal,offset_s
A,0.0,0.0,0,0
B,500.0,0.0,1,30
C,1000.0,0.0,1,60
D,1500.0,0.0,0,0
""",
    "roads.csv": """\
road_id,from_node,to_node,length_m,bus_lane
A-B,A,B,500.0,0
B-C,B,C,500.0,1
C-D,C,D,500.0,0
D-C,D,C,500.0,0
C-B,C,B,500.0,1
B-A,B,A,500.0,0
""",
    "stops.csv": """\
stop_id,road_id,pos_m,x_m,y_m
s1,A-B,100.0,100.0,0.0
s2,B-C,250.0,750.0,0.0
s3,C-D,400.0,1400.0,0.0
t1,D-C,100.0,1400.0,0.0
t2,C-B,250.0,750.0,0.0
t3,B-A,400.0,100.0,0.0
""",
    "services.csv": """\
service_id,route_id,length_m,roads
out,1,1500.0,A-B B-C C-D
back,1,1500.0,D-C C-B B-A
""",
    "service_stops.csv": """\
service_id,stop_sequence,stop_id,shape_dist_traveled_m
out,0,s1,100.0
out,1,s2,750.0
out,2,s3,1400.0
back,0,t1,100.0
back,1,t2,750.0
back,2,t3,1400.0
""",
    "trips.csv": """\
trip_id,service_id,departure_s
out.0,out,0
out.1,out,300
back.0,back,60
back.1,back,400
""",
    "passengers.csv": """\
passenger_id,departure_s,min_demand
0,10,0.5
1,20,1.0
2,30,1.25
""",
    "legs.csv": """\
passenger_id,leg,board_stop_id,alight_stop_id,services
0,0,s1,s3,out
1,0,t1,t2,back
2,0,s1,s2,out
2,1,s2,s3,out
""",
    "car_routes.csv": """\
weight,roads
1.0,A-B B-C
0.5,C-B B-A
""",
    "car_volumes.csv": """\
hour,cars_per_hour
0,100.0
""",
}
DETAILS = {  # what a city may say and the hamlet usually does not
    "names.csv": """\
kind,id,source_id,name
stop,s1,de:07:1,Market
service,out,R1-0,1 to the station
trip,out.1,71:b,
""",
    "road_shapes.csv": """\
road_id,points
A-B,"250,12.5 300,-3"
""",
    "stop_details.csv": "stop_id,lane\ns2,1\n",
    "vehicles.csv": """\
capacity,min_dwell_s,exchange_s_per_passenger,length_m,max_speed_mps,accel_mps2,decel_mps2
90,15,2.5,18.0,13.9,1.0,2.0
""",
    "trip_details.csv": "trip_id,vehicle,block_id\nout.1,1,duty 7\nback.0,0,duty 7\n",
    "control_points.csv": "stop_id,max_hold_s\ns1,45.0\nt2,20.0\n",
    "disruptions.csv": """\
kind,id,stop_id,from_s,until_s,factor,day
slow,B-C,,60,600,2.5,
cancelled,back.1,,,,,
breakdown,out.1,s2,,,,7
closed,t2,,100,400,,
""",
    "schedule.csv": "trip_id,stop_sequence,due_s\n"
    + "".join(
        f"{trip},{i},{start + 90 * i}\n"
        for trip, start in (("out.0", 0), ("out.1", 300), ("back.0", 60), ("back.1", 400))
        for i in range(3)
    ),
}
MANIFEST: dict[str, Any] = {
    "format": "evenline-city-1",
    "name": "hamlet",
    "horizon_s": 1200,
    "vehicle": {
        "capacity": 50,
        "min_dwell_s": 12,
        "exchange_s_per_passenger": 4,
        "length_m": 12.0,
        "max_speed_mps": 13.9,
        "accel_mps2": 1.2,
        "decel_mps2": 2.5,
    },
}


def seal(folder: Path, **changes: Any) -> None:
    """Write a manifest whose hashes are those of the files as they are now."""
    files = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.csv")
    }
    (folder / "manifest.json").write_text(json.dumps(MANIFEST | {"files": files} | changes))


def write_hamlet(folder: Path, tables: dict[str, bytes] | None = None) -> Path:
    """The hamlet as a new folder, with some tables added or replaced, and sealed."""
    shutil.rmtree(folder, ignore_errors=True)  # to write over a file is slow on some disks
    folder.mkdir()
    plain = {name: text.encode() for name, text in HAMLET.items()}
    for name, content in (plain | (tables or {})).items():
        (folder / name).write_bytes(content)
    seal(folder)
    return folder


DOORS = {
    "opening_s": 2.0,
    "alighting_s_per_passenger": 1.5,
    "crowding_s_per_passenger": 0.02,
}


def write_detailed(folder: Path) -> Path:
    """The hamlet with everything that a city may say."""
    details = {name: text.encode() for name, text in DETAILS.items()}
    write_hamlet(
        folder, details | {"network.net.xml.gz": b"net", "a.add.xml": b"", "b.rou.xml": b""}
    )
    seal_whole(folder)
    return folder


def seal_whole(folder: Path) -> None:
    """Seal a detailed hamlet, its carried files too."""
    files = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "manifest.json"
    }
    seal(
        folder,
        files=files,
        origin={"lat": 46.2, "lon": 6.1},
        clock={"date": "2012-10-01", "start_s": 21_600, "zone": "Europe/Zurich"},
        notes=["demand is synthetic"],
        vehicle=MANIFEST["vehicle"] | DOORS,
        variation={"days": 1.5, "day_sd": 0.1, "line_sd": 0.0},
        operations={
            "hold_at": "terminals",
            "max_hold_s": 45.0,
            "earliest_s": 0.0,
            "latest_s": 120.0,
            "most_load": 0.5,
            "ignored_share": 0.25,
            "cut_share": 0.25,
            "round_s": 30.0,
            "cancelled_share": 0.125,
            "duties": True,
            "recovery_s": 60,
            "starts_shared": 0.5,
        },
        carried={
            "additional": ["a.add.xml"],
            "routes": ["b.rou.xml"],
            "own_buses": True,
            "begin_s": 300,
            "options": {"time-to-teleport": "300"},
        },
    )


def refusal(folder: Path) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(InputError) as caught:
        load_city(folder)
    line = str(caught.value)
    assert str(folder) in line and len(line.splitlines()) == 1, "one line that names the place"
    return line.replace(str(folder), "").lstrip(":/ ")


def cells_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def with_cell(name: str, row: int, column: int, value: str) -> str:
    """A table of the hamlet with one value changed; row 0 is the header."""
    return in_cell((HAMLET | DETAILS)[name], row, column, value)


def in_cell(text: str, row: int, column: int, value: str) -> str:
    """A table with one value changed; row 0 is the header."""
    cells = cells_of(text)
    cells[row][column] = value
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(cells)
    return out.getvalue()
