"""All durations, in groups, with their defaults.

A `Pause` is a wait before something is checked, tried or done again. A shorter pause only costs more processor
time, so tests shorten all pauses at once. A `Limit` is the time after which a caller gives up, or after which something
counts as settled, forgotten or in trouble. A shorter limit makes a busy machine fail, so each limit is changed by name
only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.timing import DriverTiming, Limit, Pause, Pauses
from gateway.timing.clock import Clock, SystemClock


@dataclass(frozen=True, kw_only=True)
class JournalTiming:
    """The committer and its clients (`gateway/journal`)."""

    answer_seconds: Limit = 10.0
    """How long a command waits for its answer, across restarts of the committer, before it fails."""
    slot_seconds: Limit = 10.0
    """How long a command waits for one of the slots of its process."""
    reconnect_seconds: Pause = 0.05
    """Between two tries of a client to connect; a fifth of it after a connection was lost."""
    beat_seconds: Pause = 0.5
    """Longest time between two renewals of a lease; a fifth of the lease where that is shorter."""
    tidy_seconds: Pause = 0.5
    """Between two checks by the committer of its reserve, and of whether it can write the WAL into the file."""
    loop_commit_seconds: Limit = 0.002
    """While small commits usually take longer than this, every commit is made in the commit thread."""
    hiccup_seconds: Limit = 0.008
    """In the estimate of how long commits usually take, a single commit counts as at most this long."""
    checkpoint_seconds: Pause = 1.0
    """Before the next try to write the WAL into the file, where readers kept the last one from finishing."""
    busy_seconds: Limit = 1.0
    """How long the committer's connections to SQLite wait for another process that holds the file's lock."""
    read_busy_seconds: Limit = 2.0
    """How long connections that only read wait for another process that holds the lock of SQLite's file."""
    draw_again_seconds: Pause = 1.0
    """Before a committer that starts tries again to draw its token, where the disk was full."""
    backup_pause_seconds: Pause = 0.001
    """Between two steps of copying the journal for a backup."""


@dataclass(frozen=True, kw_only=True)
class WorkersTiming:
    """The loop of each background worker (`gateway/blocks/maintenance/worker.py`)."""

    poll_seconds: Pause = 0.25
    """Between two checks by an idle worker of whether the journal has grown."""
    idle_seconds: Pause = 5.0
    """After this, an idle worker looks for work in any case, since some falls due with time."""
    held_back_seconds: Pause = 0.5
    """After this, an idle worker looks for work again if there is work that only waits for readers."""
    failed_most_seconds: Pause = 30.0
    """Longest pause after a step that failed; the first one is `poll_seconds`, and each next one twice as long."""


@dataclass(frozen=True, kw_only=True)
class SweeperTiming:
    """Deleting the blocks that ended sessions left behind (`gateway/blocks/maintenance/sweeper.py`)."""

    retry_seconds: Pause = 30.0
    """Before a session that could not be listed on every backend is tried again, and such a backend is listed again."""
    list_seconds: Limit = 10.0
    """How long one step may list a session's prefix on a backend and delete what it finds there."""
    upload_most_seconds: Limit = 3_600.0
    """How long after the end of a session one of its puts may still arrive, at most. A shorter limit may lose bytes."""


@dataclass(frozen=True, kw_only=True)
class ReleaseTiming:
    """Taking deleted objects and ended uploads apart (`gateway/blocks/maintenance/release.py`)."""

    remember_seconds: Limit = 86_400.0
    """How long a completed upload is remembered, so that a repeated completion gets its answer."""


@dataclass(frozen=True, kw_only=True)
class BlocksTiming:
    """Writing and reading blocks (`gateway/blocks/write/writer.py`, `packer.py`, `block_put.py`, `bad_copies.py`)."""

    gather_seconds: Pause = 0.02
    """How long a small body waits for others to share its pack, at most, once there is room for a pack."""
    fill_seconds: Limit = 2.0
    """How long a block may be filling while others wait for bytes: at 4 MiB a second it is full by then."""
    landing_seconds: Limit = 5.0
    """How long copies that no write waits for may take before they count as missing and are looked for."""
    doubt_seconds: Limit = 600.0
    """How long a command whose answer never came may still be committed. A shorter one may lose bytes."""
    report_again_seconds: Pause = 60.0
    """Between two reports that the same copy is absent or damaged."""


@dataclass(frozen=True, kw_only=True)
class InlineTiming:
    """Small values in the journal's database (`gateway/blocks/maintenance/inline_flusher.py`)."""

    flush_seconds: Pause = 2.0
    """The least age of a value when it is written to a file. The greatest is about twice this."""


@dataclass(frozen=True, kw_only=True)
class RoutesTiming:
    """Which copy is read (`gateway/placement/routes.py`, `breaker.py`)."""

    hedge_seconds: Limit = 0.25
    """Shortest time after which a read counts as slow, and another copy is asked as well."""
    window_seconds: Limit = 30.0
    """How long the calls of a backend are counted together, of which a share must fail to open its circuit."""
    open_first_seconds: Pause = 1.0
    """How long reads ask a failing backend last before one call tests whether it works again; twice as long after each
    test that fails."""
    open_most_seconds: Pause = 60.0
    """Longest time for which reads ask a failing backend last before the next test."""


@dataclass(frozen=True, kw_only=True)
class InventoryTiming:
    """Listing whole backends for `fsck` and `gc` (`gateway/blocks/maintenance/inventory.py`)."""

    thousand_keys_seconds: Limit = 60.0
    """How long a backend may take for a thousand keys of its listing, on average, before it is given up."""


@dataclass(frozen=True, kw_only=True)
class CompactorTiming:
    """Rewriting packs (`gateway/blocks/maintenance/compactor.py`)."""

    rest_seconds: Pause = 60.0
    """How long a place that could not be asked for a new pack is left alone after the first failure, and packs that lie
    on the same places after one of them could not be rewritten; twice as long after each next failure."""
    rest_most_seconds: Pause = 3_600.0
    """Longest time for which they are left alone."""
    look_seconds: Pause = 5.0
    """Between two checks of the new packs that wait to be used, of which there may be thousands."""


@dataclass(frozen=True, kw_only=True)
class MoverTiming:
    """Making and dropping copies (`gateway/reconcile/mover.py`)."""

    look_seconds: Pause = 0.25
    """Before the next look, if the last one found fewer blocks than there is room for. Blocks that are written one by
    one are then looked up and copied together."""
    gather_seconds: Pause = 0.1
    """How long a finished copy waits to be recorded, if the last look found fewer blocks than there is room for, so
    that one command names several copies."""
    revisit_seconds: Pause = 0.5
    """Shortest time after which blocks that were passed over are looked at again."""
    skip_seconds: Pause = 0.000_1
    """The same for each row that was passed over."""


@dataclass(frozen=True, kw_only=True)
class OldCopiesTiming:
    """Deleting the old copies of moved blocks (`gateway/reconcile/old_copies.py`)."""

    confirmed_seconds: Limit = 60.0
    """How long the confirmation counts that every backend that should hold a block has it."""
    warn_again_seconds: Pause = 60.0
    """Between two warnings that a backend does not have what it confirmed."""


@dataclass(frozen=True, kw_only=True)
class BlockBackoffTiming:
    """Blocks whose copies could not be brought to their desired backends (`gateway/reconcile/backoff.py`)."""

    first_seconds: Pause = 1.0
    """Before the second attempt; twice as long before each next one."""
    most_seconds: Pause = 3_600.0
    """Longest pause between two attempts."""
    aside_seconds: Pause = 86_400.0
    """Between two attempts for a block that was set aside after too many, or is lost."""
    pinned_seconds: Pause = 600.0
    """Between two checks of a block that only waits for a backup, or is dead."""


@dataclass(frozen=True, kw_only=True)
class BackendBackoffTiming:
    """Backends that copies failed on (`gateway/placement/backend_backoff.py`)."""

    first_seconds: Pause = 1.0
    """How long a backend is left alone after its first failure; twice as long after each next one."""
    most_seconds: Pause = 60.0
    """Longest time for which a backend is left alone, also if the backend asks for more."""


@dataclass(frozen=True, kw_only=True)
class ThrottleTiming:
    """Copies that give way to clients (`gateway/reconcile/throttle.py`)."""

    wait_most_seconds: Pause = 60.0
    """Longest time for which no copy is begun while clients need the processors."""
    rest_most_seconds: Pause = 2.0
    """Longest rest between two slices of copies."""
    look_seconds: Pause = 0.25
    """Between two readings of the kernel's figures."""
    calm_seconds: Pause = 2.0
    """How long clients must have left the processors alone before copies are made at full speed."""


@dataclass(frozen=True, kw_only=True)
class PlannerTiming:
    """The walks over all blocks (`gateway/reconcile/planner.py`)."""

    second_walk_seconds: Pause = 600.0
    """Between a first walk and the second one, which finds what was written under the older policy meanwhile."""
    daily_walk_seconds: Pause = 86_400.0
    """Between two walks from then on."""


@dataclass(frozen=True, kw_only=True)
class MarkersTiming:
    """Checking the identity of backends (`gateway/site/storage/marker_guard.py`, `backend_pool.py`)."""

    local_seconds: Pause = 2.0
    """Between two checks of the marker of a local backend, and of whether backends were added or removed."""
    distant_seconds: Pause = 4.0
    """Between two checks of the marker of a distant backend."""
    answer_seconds: Limit = 4.0
    """How long a backend may take to return its marker before it counts as unavailable."""
    files_seconds: Pause = 10.0
    """Between two checks of the files that a connection to a backend needs: its secret and CA certificate."""
    stamp_seconds: Pause = 5.0
    """Between two stamps of a backend by which its marker follows the journal, unless something waits for one."""
    last_stamp_seconds: Limit = 3.0
    """How long a process that ends may take to stamp its backends a last time."""


@dataclass(frozen=True, kw_only=True)
class BackendsTiming:
    """Opening and closing backends (`gateway/site`)."""

    open_seconds: Limit = 10.0
    """How long opening a backend may take before it counts as unavailable."""
    close_seconds: Limit = 120.0
    """How long calls under way may take where a backend leaves the config or is reopened; a longer deadline of the
    backend counts instead."""
    reopen_seconds: Pauses = (0.5, 1.0, 2.0, 5.0, 10.0)
    """Between two tries to open a backend that is unavailable."""
    claim_seconds: Pause = 5.0
    """Between two tries to claim backends that could not be claimed yet."""
    lost_look_seconds: Pause = 1.0
    """Between two checks of which backends were given up as lost."""
    report_close_seconds: Limit = 2.0
    """How long a process that ends waits for its reports of bad copies to arrive."""


@dataclass(frozen=True, kw_only=True)
class ReloadTiming:
    """Adopting an edited config or certificate (`config_reload.py`, `refusals.py`, `active_config.py`, `tls.py` in
    `gateway/site`)."""

    look_seconds: Pause = 1.0
    """Between two checks of the file; a changed file is read once it has stayed the same for this long."""
    certificate_seconds: Pause = 1.0
    """Between two checks of the files of the certificate."""
    follow_seconds: Pause = 1.0
    """Between two checks by a client of whether another config is in force."""
    poll_seconds: Pause = 0.02
    """Between two checks of whether every process runs the new config, and of whether a request was answered."""
    refused_first_seconds: Pause = 5.0
    """Before an edit that was refused for a temporary reason is tried again; twice as long each next time."""
    refused_most_seconds: Pause = 300.0
    """Longest pause before an edit that was refused is tried again."""
    prepare_seconds: Limit = 120.0
    """How long the keeper may take to register and claim added backends, and to check that a leaving one is empty."""
    adopt_seconds: Limit = 60.0
    """How long each process may take for each step of adopting a config."""


@dataclass(frozen=True, kw_only=True)
class CommittersTiming:
    """Starting and ending committers (`gateway/site/committer_launcher.py`, `committing.py`)."""

    try_seconds: Pause = 0.02
    """Between two checks of whether a committer that was started answers, or has ended."""
    listening_seconds: Pause = 0.005
    """Between two checks by a committer of whether its socket exists."""
    tend_seconds: Pause = 0.1
    """Between two checks by a client that has lost its committer of whether there is one again."""
    recovering_seconds: Pause = 10.0
    """Between two warnings that a committer that was started works, and does not listen yet."""
    held_seconds: Pause = 0.2
    """Before the next try, if a process holds the journal's lock and does not answer."""
    held_most_seconds: Limit = 10.0
    """How long a process may hold the journal's lock without answering."""
    failed_seconds: Pause = 2.0
    """Before the next try where no committer could be started."""
    supervised_seconds: Limit = 3.0
    """How long a supervisor may take to start its committer again before a client starts one."""
    end_seconds: Limit = 1.0
    """How long a client that ends waits for the end of the committer that it started."""
    stand_by_seconds: Pause = 0.1
    """Between two tries of a committer to take the lock, and two checks of whether it is still needed."""
    lonely_seconds: Limit = 60.0
    """A committer that a client started ends once it has had no session for this long."""


@dataclass(frozen=True, kw_only=True)
class ProcessesTiming:
    """The supervisor and its processes (`gateway/site/processes/supervisor.py`, `supervised.py`, `child.py`)."""

    report_seconds: Pause = 1.0
    """Between two reports of a process, and between two ticks by which the supervisor counts those that are missing."""
    silence_seconds: Limit = 15.0
    """A process that has reported nothing for this long counts as unhealthy."""
    hung_seconds: Limit = 60.0
    """A process that has reported nothing for this long, although the kernel let it run, hangs, and is killed. This is
    a thousand times what a turn of its event loop should take, and six times the lease of its session."""
    hung_starting_seconds: Limit = 300.0
    """The same limit as `hung_seconds`, for a process that is not ready yet: it may have a large journal to recover."""
    restart_seconds: Pauses = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    """Before a process that ended is started again."""
    restart_ready_seconds: Pause = 0.2
    """Longest pause before a process that was ready when it ended is started again, however often it ends: a successor
    takes over within two seconds."""
    settled_seconds: Limit = 30.0
    """A process that ran for this long is restarted without a pause."""
    start_seconds: Limit = 60.0
    """How long a process may take to become ready."""
    stop_seconds: Limit = 10.0
    """How long the keeper and the committer may each take to stop, and a worker beyond `server.stop_seconds`."""
    address_seconds: Limit = 5.0
    """How long an address may be taken before starting fails: workers of a killed supervisor may be finishing."""
    address_try_seconds: Pause = 0.2
    """Between two tries to listen on an address that is taken."""
    lock_try_seconds: Pause = 0.05
    """Between two tries to take the lock of the serving process, which a process that only reads holds for a moment."""
    status_seconds: Pause = 2.0
    """Between two looks of `entrepot status --watch` and `--wait`."""
    answer_seconds: Limit = 5.0
    """How long the supervisor may take to answer a command of the command line."""


@dataclass(frozen=True, kw_only=True)
class ProbesTiming:
    """Readiness and gauges (`readiness.py`, `status_http.py`, `replication_metrics.py`, `keeper.py` in
    `gateway/site/processes`)."""

    quick_seconds: Limit = 1.0
    """How long a probe waits for backends that no policy's writes wait for."""
    backend_seconds: Limit = 5.0
    """How long a backend may take for a probe, whatever its own deadline is."""
    commit_seconds: Limit = 5.0
    """How long a commit of a readiness probe may take."""
    readiness_seconds: Pause = 1.0
    """How long the result of a readiness probe is reused."""
    backlog_seconds: Pause = 5.0
    """Between two counts of what waits for the keeper."""
    copies_seconds: Pause = 15.0
    """Between two counts of the blocks on each backend, of what buckets store, and of space on disks."""
    connection_seconds: Limit = 60.0
    """How long a connection to the address for metrics and probes may stay open, from when it is accepted."""
    last_answer_seconds: Limit = 60.0
    """How long a connection whose time is over may take to finish the answer that it is busy with."""


@dataclass(frozen=True, kw_only=True)
class MetricsTiming:
    """The log and the measurements of a process (`gateway/metrics`)."""

    flush_seconds: Pause = 0.1
    """How long a log line waits for others, so that one write takes them all."""
    close_seconds: Limit = 5.0
    """How long a process that ends waits for the last lines to be written."""
    repeat_seconds: Pause = 60.0
    """How often a message that is repeated is logged."""
    tick_seconds: Limit = 0.05
    """Between two measurements of how late the event loop is. Not scaled, so that figures can be compared."""
    lag_seconds: Pause = 1.0
    """The period over which the greatest of these measurements is reported."""


@dataclass(frozen=True, kw_only=True)
class FailpointsTiming:
    """Actions of armed failpoints (`gateway/failpoints.py`)."""

    sleep_seconds: Limit = 2.0
    """How long the action `sleep` holds up its thread."""


@dataclass(frozen=True, kw_only=True)
class ConnectionsTiming:
    """The connections of S3 clients (`s3api`), beside what the config's `server` section sets."""

    handshake_seconds: Limit = 10.0
    """How long a TLS handshake may take."""
    accept_again_seconds: Pause = 1.0
    """Before the next try to accept a connection, after there were no file descriptors left."""
    close_seconds: Limit = 1.0
    """How long a client has to take some more of what is unsent when its connection ends, or, where nothing is unsent,
    for the close_notify of TLS."""
    tls_close_seconds: Limit = 86_400.0
    """The event loop's own limit on how long a TLS connection takes to end: never reached, since `close_seconds` ends
    it first."""
    linger_seconds: Limit = 5.0
    """How long an unread body is read and dropped after an answer, so that the client sees the answer."""
    probe_seconds: Pause = 1.0
    """How long a client that sends no more waits for its answer before it is sent an interim response, which shows
    whether it is still there."""
    stop_look_seconds: Pause = 0.02
    """Between two checks by a server that stops of whether connections are left."""
    cut_seconds: Limit = 0.1
    """How long the connections that remain when a server stops may take to end by themselves."""


@dataclass(frozen=True, kw_only=True)
class FilesTiming:
    """File systems, in process and over HTTP, and the gateway's side of them (`gateway/posix`)."""

    kept_seconds: Limit = 300.0
    """How long a gateway keeps the answer to a change, so that a repeated request is not run again."""
    answers_open_seconds: Limit = 5.0
    """How long a worker waits for another worker that is making the file of answers."""
    answers_wait_seconds: Limit = 0.1
    """How long a worker waits for another worker's write to the file of answers; each takes microseconds."""
    hello_seconds: Limit = 10.0
    """How long a gateway may take to answer a client's first request."""
    retry_seconds: Limit = 60.0
    """How long after its first try a client may begin another one. Must be less than `kept_seconds`."""
    retry_first_seconds: Pause = 0.05
    """Half of the longest pause before the second try; before each next one the longest pause is twice as long."""
    retry_most_seconds: Pause = 5.0
    """Longest pause between two tries, also where the gateway asks for more."""
    idle_seconds: Limit = 30.0
    """A client does not use a connection again that was idle for longer. A gateway ends it after that."""
    skew_seconds: Limit = 60.0
    """A gateway that refuses a request for its time is asked again if its clock differs by more than this from what
    the client knew of it."""
    session_seconds: Limit = 10.0
    """How long a write in process waits for a new session, from the first failure on."""
    session_look_seconds: Pause = 0.01
    """Between two checks of whether there is a new session."""
    leave_seconds: Limit = 5.0
    """How long open files and connections may take to close when their event loop or their process ends."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All durations of a process, and its clocks."""

    drivers: DriverTiming = field(default_factory=DriverTiming)
    journal: JournalTiming = field(default_factory=JournalTiming)
    workers: WorkersTiming = field(default_factory=WorkersTiming)
    sweeper: SweeperTiming = field(default_factory=SweeperTiming)
    release: ReleaseTiming = field(default_factory=ReleaseTiming)
    blocks: BlocksTiming = field(default_factory=BlocksTiming)
    inline: InlineTiming = field(default_factory=InlineTiming)
    routes: RoutesTiming = field(default_factory=RoutesTiming)
    inventory: InventoryTiming = field(default_factory=InventoryTiming)
    compactor: CompactorTiming = field(default_factory=CompactorTiming)
    mover: MoverTiming = field(default_factory=MoverTiming)
    old_copies: OldCopiesTiming = field(default_factory=OldCopiesTiming)
    block_backoff: BlockBackoffTiming = field(default_factory=BlockBackoffTiming)
    backend_backoff: BackendBackoffTiming = field(default_factory=BackendBackoffTiming)
    throttle: ThrottleTiming = field(default_factory=ThrottleTiming)
    planner: PlannerTiming = field(default_factory=PlannerTiming)
    markers: MarkersTiming = field(default_factory=MarkersTiming)
    backends: BackendsTiming = field(default_factory=BackendsTiming)
    reload: ReloadTiming = field(default_factory=ReloadTiming)
    committers: CommittersTiming = field(default_factory=CommittersTiming)
    processes: ProcessesTiming = field(default_factory=ProcessesTiming)
    probes: ProbesTiming = field(default_factory=ProbesTiming)
    metrics: MetricsTiming = field(default_factory=MetricsTiming)
    failpoints: FailpointsTiming = field(default_factory=FailpointsTiming)
    connections: ConnectionsTiming = field(default_factory=ConnectionsTiming)
    files: FilesTiming = field(default_factory=FilesTiming)
    clock: Clock = field(default_factory=SystemClock)
