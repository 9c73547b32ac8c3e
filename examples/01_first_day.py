"""A first example: simulate a day in a small town, compare two policies, draw a picture."""

import evenline as el

town = el.open_city("town")
day = el.run_day(town, policy="zero", seed=1)
held = el.run_day(town, policy="headway", seed=1)
print(day, held, sep="\n")
print(el.compare_policies(town, "zero", "headway"))
el.time_space(day, held).show()
