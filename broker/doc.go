// Package broker holds topics and their partitions: it turns names into logs, knows what each
// topic grants, keeps the positions that groups committed, and wakes who waits for an end to
// move. It speaks to the disk through storage and to nobody through a socket; broker/server
// does that.
//
// A published run walks: Partition.Append → storage.Log.Append → the visible end moves →
// waiters are woken. A fetched one: Partition.Seek → Partition.Next → a Section that the caller
// sends. Nothing goes back up.
package broker
