"""What must hold for the tables, as SQL: each statement returns a row for each violation. Pure text.

`table_check.py` fills the temporary tables that the statements use:

- `run_refs` and `body_refs`: how many rows refer to each run and each body;
- `block_run`: how many bytes of each run are in each block;
- `content_size`: the size of each run and each body, by (shape, id);
- `file_links`: how many names each file has;
- `bucket_contents`: how many objects, versions and bytes each bucket has.
"""

from __future__ import annotations

from typing import NamedTuple


class TableCheck(NamedTuple):
    """One condition that must hold."""

    kind: str
    """The kind of its findings, which never changes."""
    sentence: str
    """What is wrong; formatted with the columns after the first."""
    statement: str
    """Returns the row that violates the condition, as text, and the values for the sentence."""


TEMPORARY = (
    "run_refs (id INTEGER PRIMARY KEY, refs INTEGER NOT NULL)",
    "body_refs (id INTEGER PRIMARY KEY, refs INTEGER NOT NULL)",
    "block_run (block BLOB, run INTEGER, bytes INTEGER, PRIMARY KEY (block, run)) WITHOUT ROWID",
    "content_size (shape INTEGER, id INTEGER, bytes INTEGER, PRIMARY KEY (shape, id)) WITHOUT ROWID",
    "file_links (id INTEGER PRIMARY KEY, links INTEGER NOT NULL)",
    "bucket_contents (bucket TEXT PRIMARY KEY, objects INTEGER, versions INTEGER, bytes INTEGER) WITHOUT ROWID",
)

IS_DIR = "substr(e.name, -1) IS x'2f'"
"""Whether the entry `e` is a directory: its name ends with a slash."""

_HELD = """
INSERT INTO {table} SELECT content, count(*) FROM (
    SELECT content FROM file WHERE shape = {shape}
    UNION ALL SELECT p.content FROM part p WHERE p.shape = {shape} AND NOT EXISTS (
        SELECT 1 FROM upload u WHERE u.id = p.upload AND u.state > 0 AND u.parts > 0 AND is_joined(p.number, u.joined)
    )
    UNION ALL SELECT content FROM freed WHERE shape = {shape}
) GROUP BY content"""

_LINKED = f"""
INSERT INTO file_links SELECT node, count(*) FROM (
    SELECT e.node FROM entry e WHERE e.node > 0 AND NOT {IS_DIR}
    UNION ALL SELECT node FROM version WHERE node > 0
) GROUP BY node"""

_LISTED = f"""
INSERT INTO bucket_contents SELECT d.bucket, sum(n.live), count(*), coalesce(sum(f.size), 0) FROM (
    SELECT e.parent, e.node, e.node > 0 AS live FROM entry e WHERE NOT {IS_DIR}
    UNION ALL SELECT parent, node, 0 FROM version
) n JOIN dir d ON d.id = n.parent LEFT JOIN file f ON f.id = n.node GROUP BY d.bucket"""

FILLING = (_HELD.format(table="run_refs", shape=1), _HELD.format(table="body_refs", shape=2), _LINKED, _LISTED)


def _refs(table: str) -> tuple[TableCheck, TableCheck]:
    return (
        TableCheck(
            f"{table}-refs",
            "{0} rows refer to it, and its count is {1}",
            f"""
            SELECT '{table} ' || t.id, coalesce(h.refs, 0), t.refs
            FROM {table} t LEFT JOIN {table}_refs h ON h.id = t.id WHERE t.refs <> coalesce(h.refs, 0)""",
        ),
        TableCheck(
            f"{table}-absent",
            "{0} rows refer to it, and it does not exist",
            f"""
            SELECT '{table} ' || h.id, h.refs FROM {table}_refs h
            WHERE NOT EXISTS (SELECT 1 FROM {table} t WHERE t.id = h.id)""",
        ),
    )


CONTENTS = (
    *_refs("run"),
    *_refs("body"),
    TableCheck(
        "content-size",
        "its content has {0} bytes, and its size is {1}",
        """
        SELECT 'file ' || f.id, s.bytes, f.size
        FROM file f JOIN content_size s ON s.shape = f.shape AND s.id = f.content WHERE f.size <> s.bytes
        UNION ALL SELECT 'run ' || r.id, s.bytes, r.size
        FROM run r JOIN content_size s ON s.shape = 1 AND s.id = r.id WHERE r.size <> s.bytes
        UNION ALL SELECT 'body ' || b.id, s.bytes, b.size
        FROM body b JOIN content_size s ON s.shape = 2 AND s.id = b.id WHERE b.size <> s.bytes
        UNION ALL SELECT 'part ' || p.number || ' of upload ' || p.upload, s.bytes, p.size
        FROM part p JOIN content_size s ON s.shape = p.shape AND s.id = p.content WHERE p.size <> s.bytes""",
    ),
    TableCheck(
        "block-counts",
        "{0} bytes of {1} runs live in it, and its counts are {2} and {3}",
        """
        SELECT 'block ' || lower(hex(b.id)), coalesce(l.live, 0), coalesce(l.members, 0), b.live, b.members
        FROM block b
        LEFT JOIN (SELECT block, sum(bytes) AS live, count(*) AS members FROM block_run GROUP BY block) l
        ON l.block = b.id
        WHERE b.live <> coalesce(l.live, 0) OR b.members <> coalesce(l.members, 0)""",
    ),
    TableCheck(
        "block-death",
        "it died at record {0}, and has {1} members and {2} live bytes of {3}",
        """
        SELECT 'block ' || lower(hex(id)), died, members, live, plain FROM block
        WHERE ((died > 0) <> (members = 0) OR plain < live)
        AND NOT (died = 0 AND members = 0 AND EXISTS (SELECT 1 FROM rewrite r WHERE r.block = block.id))""",
    ),
    TableCheck(
        "block-absent",
        "run {0} has an extent in it, and it does not exist",
        """
        SELECT 'block ' || lower(hex(l.block)), l.run FROM block_run l
        WHERE NOT EXISTS (SELECT 1 FROM block b WHERE b.id = l.block)""",
    ),
    TableCheck(
        "block-names",
        "its ring key {0}, its set of backends {1} or its policy {2} does not exist",
        """
        SELECT 'block ' || lower(hex(b.id)), b.ring_key, b.backends, b.policy FROM block b
        WHERE NOT EXISTS (SELECT 1 FROM ring_key k WHERE k.id = b.ring_key)
        OR NOT EXISTS (SELECT 1 FROM backend_set s WHERE s.id = b.backends)
        OR NOT EXISTS (SELECT 1 FROM policy p WHERE p.id = b.policy)""",
    ),
    TableCheck(
        "work-absent",
        "it has a row of work, and does not exist",
        """
        SELECT 'block ' || lower(hex(w.block)) FROM work w
        WHERE NOT EXISTS (SELECT 1 FROM block b WHERE b.id = w.block)""",
    ),
    TableCheck(
        "member",
        "run {0} is {1} of it",
        """
        SELECT 'block ' || lower(hex(l.block)), l.run, 'not a member' FROM block_run l
        WHERE NOT EXISTS (SELECT 1 FROM member m WHERE m.block = l.block AND m.run = l.run)
        UNION ALL SELECT 'block ' || lower(hex(m.block)), m.run, 'wrongly a member' FROM member m
        WHERE NOT EXISTS (SELECT 1 FROM block_run l WHERE l.block = m.block AND l.run = m.run)""",
    ),
)
"""Runs, bodies, blocks, and the references between them."""

TREE = (
    TableCheck(
        "dir-counts",
        "it has {0} live entries of {1}, {2} of them directories, and its counts are {3} of {4}, {5}",
        f"""
        SELECT 'dir ' || d.id, coalesce(n.live, 0), coalesce(n.entries, 0), coalesce(n.subdirs, 0),
            d.live, d.entries, d.subdirs
        FROM dir d LEFT JOIN (
            SELECT e.parent, sum(e.dead = 0) AS live, count(*) AS entries, sum({IS_DIR}) AS subdirs
            FROM entry e GROUP BY e.parent
        ) n ON n.parent = d.id
        WHERE d.live <> coalesce(n.live, 0) OR d.entries <> coalesce(n.entries, 0)
        OR d.subdirs <> coalesce(n.subdirs, 0)""",
    ),
    TableCheck(
        "dir-place",
        "its parent is {0}, which has no such entry",
        """
        SELECT 'dir ' || d.id, d.parent FROM dir d WHERE d.parent > 0 AND NOT EXISTS (
            SELECT 1 FROM entry e WHERE e.parent = d.parent AND e.dead IN (0, 1) AND e.name = d.name AND e.node = d.id
        )""",
    ),
    TableCheck(
        "entry-dead",
        "its mark is {0}, and should be {1}",
        f"""
        SELECT 'entry ' || lower(hex(e.name)) || ' in ' || e.parent, e.dead,
            CASE WHEN {IS_DIR} THEN coalesce(d.live, 0) = 0 ELSE e.node = 0 END AS should
        FROM entry e LEFT JOIN dir d ON {IS_DIR} AND d.id = e.node WHERE e.dead <> should""",
    ),
    TableCheck(
        "entry-parent",
        "its directory {0} does not exist",
        """
        SELECT 'entry ' || lower(hex(e.name)), e.parent FROM entry e
        WHERE NOT EXISTS (SELECT 1 FROM dir d WHERE d.id = e.parent)""",
    ),
    TableCheck(
        "file-links",
        "{0} names refer to it, and its count is {1}",
        """
        SELECT 'file ' || f.id, coalesce(l.links, 0), f.links FROM file f LEFT JOIN file_links l ON l.id = f.id
        WHERE f.links <> coalesce(l.links, 0)""",
    ),
    TableCheck(
        "file-absent",
        "{0} names refer to it, and it does not exist",
        """
        SELECT 'file ' || l.id, l.links FROM file_links l WHERE NOT EXISTS (SELECT 1 FROM file f WHERE f.id = l.id)""",
    ),
    TableCheck(
        "name-shown",
        "listings show {0} bytes and the ETag {1} for it, and its file has {2} and {3}",
        f"""
        SELECT 'name ' || lower(hex(n.name)) || ' in ' || n.parent, n.size, n.etag, f.size, f.etag FROM (
            SELECT e.parent, e.name, e.node, e.size, e.etag, e.owner, e.checksum FROM entry e WHERE NOT {IS_DIR}
            UNION ALL SELECT parent, name, node, size, etag, owner, checksum FROM version
        ) n JOIN file f ON f.id = n.node
        WHERE f.rewritten = 0 AND (n.size <> f.size OR n.etag <> f.etag OR n.owner <> f.owner
            OR n.checksum <> substr(f.checksums, 1, length(n.checksum))
            OR (n.checksum = x'') <> (f.checksums = x''))""",
    ),
    TableCheck(
        "version-chain",
        "its newer version {0} or its older version {1} does not refer back to it",
        """
        SELECT 'version ' || v.version, v.newer, v.older FROM version v
        WHERE NOT (
            EXISTS (SELECT 1 FROM version n WHERE n.parent = v.parent AND n.name = v.name
                    AND n.version = v.newer AND n.older = v.version)
            OR EXISTS (SELECT 1 FROM entry e WHERE e.parent = v.parent AND e.dead IN (0, 1) AND e.name = v.name
                       AND e.version = v.newer AND e.older = v.version)
        ) OR (v.older > 0 AND NOT EXISTS (
            SELECT 1 FROM version o WHERE o.parent = v.parent AND o.name = v.name
            AND o.version = v.older AND o.newer = v.version
        ))""",
    ),
)
"""Directories, names and versions."""

COUNTS = (
    TableCheck(
        "bucket-counts",
        "it has {0} objects, {1} versions, {2} bytes, {3} uploads, and its counts are {4}, {5}, {6}, {7}",
        """
        SELECT 'bucket ' || b.name, coalesce(l.objects, 0), coalesce(l.versions, 0), coalesce(l.bytes, 0),
            (SELECT count(*) FROM upload u WHERE u.bucket = b.name AND u.state = 0 AND u.id > b.id) AS open,
            b.objects, b.versions, b.size, b.uploads
        FROM bucket b LEFT JOIN bucket_contents l ON l.bucket = b.name
        WHERE b.objects <> coalesce(l.objects, 0) OR b.versions <> coalesce(l.versions, 0)
        OR b.size <> coalesce(l.bytes, 0) OR b.uploads <> open""",
    ),
    TableCheck(
        "gone-uploads",
        "{0} uploads into it are open, and its count is {1}",
        """
        SELECT 'bucket ' || g.name || ', which is deleted', (
            SELECT count(*) FROM upload u WHERE u.bucket = g.name AND u.state = 0 AND u.id > g.id AND u.id < g.before
        ) AS open, g.uploads
        FROM gone g WHERE g.uploads <> open OR g.uploads = 0""",
    ),
    TableCheck(
        "upload-astray",
        "its bucket {0} is deleted, and no row says that it must be ended",
        """
        SELECT 'upload ' || u.id, u.bucket FROM upload u
        WHERE u.state = 0 AND NOT EXISTS (SELECT 1 FROM bucket b WHERE b.name = u.bucket AND b.id < u.id)
        AND NOT EXISTS (SELECT 1 FROM gone g WHERE g.name = u.bucket AND g.id < u.id AND u.id < g.before)""",
    ),
    TableCheck(
        "upload-parts",
        "it has {0} parts, and its count is {1}",
        """
        SELECT 'upload ' || u.id, (SELECT count(*) FROM part p WHERE p.upload = u.id) AS standing, u.parts
        FROM upload u WHERE u.parts <> standing""",
    ),
    TableCheck(
        "user-buckets",
        "it owns {0} buckets, and its count is {1}",
        """
        SELECT 'user ' || u.name, (SELECT count(*) FROM bucket b WHERE b.owner = u.id) AS owned, u.buckets
        FROM user u WHERE u.buckets <> owned""",
    ),
)
"""The counts of buckets, uploads and users."""

CHECKS = (*CONTENTS, *TREE, *COUNTS)
