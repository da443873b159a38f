// Package storage is the log: one append-only sequence of DATA frames per partition, kept in
// segment files with sparse mapped indexes. It knows frames, not topics; it imports protocol
// for one reason: a stored frame is a sent frame.
//
// # On disk
//
//	DIR/LOCK                     flock: a second broker refuses to start and names the holder
//	DIR/NODE                     node id, clean-shutdown marker
//	DIR/…/<partition>/
//	    MANIFEST                 which segments exist, how far the sealed ones reach, damage, epoch
//	    <base>-<seg>.wal         DATA frames and nothing else, zero bytes behind the last one
//	    <base>-<seg>.idx         derived: sparse, mapped, rebuilt whenever in doubt
//	    <index>.state            checkpoint of what control records have built
//	    quarantine/              bytes and files put aside; nothing is ever deleted because it is unreadable
//
// # Invariants
//
//  1. The frames of a log have consecutive indexes; their offsets and timestamps never decrease
//     and neither does their term.
//  2. Every segment but the last is durable, whole, before a later one holds a frame. So only the last
//     one is scanned after an unclean stop.
//  3. A byte below a published end never changes and is never truncated while the end stands:
//     sendfile hands out references to pages, not copies.
//  4. A reader holds a reference to the segment it reads; a file is closed or removed when the
//     last reader has left.
//  5. A sync that failed once is final: the log acknowledges nothing any more.
//
// # Levels
//
// Append returns when the bytes are written. Durability comes by group commit: a syncer per
// disk flushes what has gathered while the previous flush ran, and reports the durable end
// through LogOptions.OnDurable.
package storage
