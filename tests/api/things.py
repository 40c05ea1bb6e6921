"""Loaded by schemathesis: paths name what is there, mostly, so that more than one 404 after the other is met.

Random texts stay in every fourth request. What ends the caller's own access is not asked at all; the list is in `conform.py`.
"""

import json
import os

import schemathesis

# the gateway of a console's machine, which does not run here
SILENT = (502, "gateway_silent")

THERE = json.loads(os.environ["SALLYPORT_THERE"])
asked = 0


@schemathesis.hook
def before_call(context, case, kwargs):
    global asked
    asked += 1
    if case.path_parameters and asked % 4:
        for name, value in THERE.items():
            # what is there stays there
            if name in case.path_parameters and (case.method != "DELETE" or name == "workspace"):
                case.path_parameters[name] = value


@schemathesis.check
def no_fault(context, response, case):
    """Nothing is answered 5xx, but that the gateway is silent."""
    if response.status_code >= 500 and (response.status_code, response.json().get("code")) != SILENT:
        raise AssertionError(f"{response.status_code}: {response.text[:200]}")
