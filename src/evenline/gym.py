"""Registers the embedded cities with Gymnasium: importing this module is enough.

    env = gymnasium.make("evenline.gym:evenline/Town-v0")

The environment is `evenline.make_env` of the city: the fast world on the days for training.
"""

import gymnasium

for _id, _city in (("evenline/Town-v0", "town"), ("evenline/City-v0", "city")):
    gymnasium.register(_id, entry_point="evenline.interface.days:make_env", kwargs={"city": _city})
