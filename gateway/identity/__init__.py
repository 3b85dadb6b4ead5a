"""Tenants, users, access keys, and the verification of AWS signatures over plain values."""

from gateway.identity import users
from gateway.journal.commands import CommandTable

COMMANDS: CommandTable = {
    users.AddTenant: users.add_tenant,
    users.AddUser: users.add_user,
    users.RemoveUser: users.remove_user,
    users.AddAccessKey: users.add_access_key,
    users.RemoveAccessKey: users.remove_access_key,
    users.ResealAccessKeys: users.reseal_access_keys,
    users.SetUserDisabled: users.set_user_disabled,
}
"""The commands of this package, for the committer."""
