"""Each operation needs the actions that S3 documents for it."""

from __future__ import annotations

from gateway.access.actions import ACTIONS, ActionKind
from gateway.access.conditions import KEYS
from s3api.authorize import _VALUES
from s3api.operations import ROUTE_ROWS
from s3api.permissions import PERMISSIONS, PUT_TAGS, SOURCE, SOURCE_TAGS

UNSIGNED = {"Unknown", "PostObject", "PreflightRequest"}


def test_each_operation_has_a_permission_and_no_other_has() -> None:
    assert {route.operation for route in ROUTE_ROWS} - UNSIGNED == set(PERMISSIONS)


def test_each_action_is_one_that_policies_may_name_and_is_about_what_the_operation_is_about() -> None:
    for route in ROUTE_ROWS:
        permission = PERMISSIONS.get(route.operation)
        if permission is not None:
            kind = ActionKind(route.scope)
            for action in (*permission.actions, *permission.version_actions):
                assert ACTIONS[action] is kind, (route.operation, action)
    for action in (PUT_TAGS, *SOURCE.actions, *SOURCE.version_actions, *SOURCE_TAGS.actions):
        assert ACTIONS[action] is ActionKind.OBJECT


def test_requests_have_a_value_for_each_condition_key_that_policies_may_name() -> None:
    assert set(_VALUES) | {"s3:requestobjecttagkeys", "s3:versionid"} == KEYS
