"""Checks for schemathesis: no answer to a tenant's token may hold what belongs to another tenant."""

import os

import schemathesis

MARK = os.environ["FOREIGN_MARK"]


@schemathesis.check
def nothing_of_another_tenant(ctx, response, case):
    # What a request itself brought along may come back in an error.
    sent = f"{case.path_parameters}{case.query}{case.body}"
    if MARK in (response.text or "") and MARK not in sent:
        raise AssertionError(f"an answer holds what is another tenant's: {response.text[:500]}")
