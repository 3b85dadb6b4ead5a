"""The processes of a served site: supervisor, committer, keeper, and what every process under the supervisor shares."""
