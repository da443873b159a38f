package protocol

import "github.com/cespare/xxhash/v2"

// PartitionOf is where records with that key go: xxh64(key) mod partitions. Every client must
// compute the same, or one key's records lose their order.
func PartitionOf(key []byte, partitions uint32) uint32 {
	if partitions <= 1 {
		return 0
	}
	return uint32(xxhash.Sum64(key) % uint64(partitions))
}
