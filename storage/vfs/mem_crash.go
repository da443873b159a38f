package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash returns what a power cut could leave of the tree, chosen by rng, under
// the model Mem describes. The same history and the same rng give the same
// image.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	c := &crash{
		rng:   rng,
		root:  m.disk.root,
		names: make(map[*memNode]map[string]*memNode),
		image: make(map[*memNode]*memNode),
	}
	c.replay(m.disk.pending)
	return newMem(&memDisk{root: c.node(m.disk.root), free: m.disk.free, total: m.disk.total})
}

// CrashClean returns what the end of the process leaves of the tree: all that
// was written. What was synced and what was not stays as it is, so that a later
// Crash of the image may still lose it.
func (m *Mem) CrashClean() *Mem {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	c := &clone{nodes: make(map[*memNode]*memNode), changes: make(map[*change]*change)}
	d := &memDisk{root: c.node(m.disk.root), free: m.disk.free, total: m.disk.total}
	for _, p := range m.disk.pending {
		d.pending = append(d.pending, c.change(p))
	}
	return newMem(d)
}

// crash makes one image.
type crash struct {
	rng   *rand.Rand
	root  *memNode
	names map[*memNode]map[string]*memNode // directories the changes kept differ in
	image map[*memNode]*memNode
}

// chance returns how probably each of many things is kept. None and all are as
// likely as everything between, as real crashes leave them often.
func (c *crash) chance() float64 {
	switch c.rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return 1
	default:
		return c.rng.Float64()
	}
}

// place is a name of a directory.
type place struct {
	dir  *memNode
	name string
}

// replay decides which of the pending changes happened. Once one was lost, so
// are the later ones of that name.
func (c *crash) replay(pending []*change) {
	chance := c.chance()
	lost := make(map[place]bool)
	second := make(map[*change]bool)
	for _, p := range pending {
		if second[p] {
			continue
		}
		both := []*change{p}
		if p.pair != nil && p.node != nil && !p.pair.done {
			both = append(both, p.pair)
			second[p.pair] = true
		}
		keep := c.rng.Float64() < chance
		for _, h := range both {
			keep = keep && !lost[place{h.dir, h.name}]
		}
		if len(both) == 2 && p.node.dir && p.dir != p.pair.dir {
			// Directories change their parents in order, as else two could end up
			// inside each other.
			keep = keep && len(lost) == 0
		}
		if link := p.link(); link != nil {
			// What was elsewhere does not vanish into a directory that was not made.
			keep = keep && c.reaches(c.root, link.dir)
		}
		for _, h := range both {
			if keep {
				h.apply(c.dir(h.dir))
			} else {
				lost[place{h.dir, h.name}] = true
			}
		}
	}
}

// reaches tells whether the directory to is from or below it in the image.
func (c *crash) reaches(from, to *memNode) bool {
	if from == to {
		return true
	}
	for _, n := range c.dir(from) {
		if n.dir && c.reaches(n, to) {
			return true
		}
	}
	return false
}

// dir returns the names of a directory in the image.
func (c *crash) dir(n *memNode) map[string]*memNode {
	if c.names[n] == nil {
		c.names[n] = maps.Clone(n.durable)
	}
	return c.names[n]
}

func (c *crash) node(n *memNode) *memNode {
	if made := c.image[n]; made != nil {
		return made // it has two names
	}
	made := &memNode{dir: n.dir}
	c.image[n] = made
	if !n.dir {
		made.data = c.content(n)
		made.synced = slices.Clone(made.data)
		made.low, made.high = len(made.data), len(made.data)
		return made
	}
	names := c.dir(n)
	made.names = make(map[string]*memNode, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		made.names[name] = c.node(names[name])
	}
	made.durable = maps.Clone(made.names)
	return made
}

// content decides what a file holds.
func (c *crash) content(n *memNode) []byte {
	n.absorb()
	size := len(n.data)
	if n.low != n.high {
		switch c.rng.IntN(4) {
		case 0:
			size = len(n.synced)
		case 1:
		default:
			size = n.low + c.rng.IntN(n.high-n.low+1)
		}
	}
	data := make([]byte, size)
	copy(data, n.synced)
	chance := c.chance()
	for pos := 0; pos < size; pos += sectorSize {
		if !n.unsynced(pos) {
			continue
		}
		sector := data[pos:min(pos+sectorSize, size)]
		var written [sectorSize]byte
		if pos < len(n.data) {
			n.copyBytes(written[:], n.data[pos:min(pos+sectorSize, len(n.data))])
		}
		switch keep := c.rng.Float64() < chance; {
		case c.rng.IntN(16) == 0:
			c.tear(sector, written[:])
		case keep:
			copy(sector, written[:])
		}
	}
	return data
}

// tear mixes the written bytes into those of a sector.
func (c *crash) tear(sector, written []byte) {
	cut := c.rng.IntN(len(sector))
	switch c.rng.IntN(3) {
	case 0:
		copy(sector[:cut], written)
	case 1:
		copy(sector[cut:], written[cut:])
	default:
		for i := range sector {
			if c.rng.IntN(2) == 0 {
				sector[i] = written[i]
			}
		}
	}
}

// clone copies a tree with all that is known of it.
type clone struct {
	nodes   map[*memNode]*memNode
	changes map[*change]*change
}

func (c *clone) node(n *memNode) *memNode {
	if n == nil {
		return nil
	}
	if made := c.nodes[n]; made != nil {
		return made
	}
	made := &memNode{dir: n.dir, removed: n.removed}
	c.nodes[n] = made
	if n.dir {
		made.names, made.durable = c.names(n.names), c.names(n.durable)
		if n.placed != nil {
			made.placed = c.change(n.placed)
		}
		return made
	}
	n.absorb()
	made.data = make([]byte, len(n.data))
	n.copyBytes(made.data, n.data)
	made.synced = slices.Clone(n.synced)
	made.dirty, made.lost = slices.Clone(n.dirty), slices.Clone(n.lost)
	made.low, made.high, made.mapped = n.low, n.high, n.mapped
	return made
}

func (c *clone) names(names map[string]*memNode) map[string]*memNode {
	made := make(map[string]*memNode, len(names))
	for name, n := range names {
		made[name] = c.node(n)
	}
	return made
}

func (c *clone) change(p *change) *change {
	if made := c.changes[p]; made != nil {
		return made
	}
	made := &change{name: p.name, done: p.done}
	c.changes[p] = made
	made.dir, made.node = c.node(p.dir), c.node(p.node)
	if p.pair != nil {
		made.pair = c.change(p.pair)
	}
	return made
}
