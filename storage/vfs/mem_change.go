package vfs

import "maps"

// change is what an operation did to one name of a directory.
type change struct {
	// immutable
	dir  *memNode
	name string
	node *memNode // what the name leads to; nil: it is gone
	pair *change  // the other half of a rename, which has just before it the link and then the unlink

	// guarded by the disk's mu
	done bool // it is durable
}

// link returns the half of a rename that makes the new name, nil for other
// changes.
func (c *change) link() *change {
	if c.pair != nil && c.node != nil {
		return c
	}
	return c.pair
}

// apply makes the change in names, a map of c.dir.
func (c *change) apply(names map[string]*memNode) {
	if c.node == nil {
		delete(names, c.name)
		return
	}
	names[c.name] = c.node
}

func (d *memDisk) change(c *change) {
	c.apply(c.dir.names)
	if c.node != nil && c.node.dir {
		c.node.placed = c
	}
	d.pending = append(d.pending, c)
}

func (d *memDisk) link(dir *memNode, name string, n *memNode) {
	d.change(&change{dir: dir, name: name, node: n})
}

func (d *memDisk) unlink(dir *memNode, name string) {
	dir.names[name].removed = true
	d.change(&change{dir: dir, name: name})
}

func (d *memDisk) unlinkAll(dir *memNode, name string) {
	n := dir.names[name]
	for child := range maps.Clone(n.names) {
		d.unlinkAll(n, child)
	}
	d.unlink(dir, name)
}

func (d *memDisk) move(fromDir *memNode, from string, toDir *memNode, to string) {
	link := &change{dir: toDir, name: to, node: fromDir.names[from]}
	unlink := &change{dir: fromDir, name: from, pair: link}
	link.pair = unlink
	d.change(link)
	d.change(unlink)
}

// commitDir makes the changes of a directory durable.
func (d *memDisk) commitDir(dir *memNode) {
	for _, c := range d.pending {
		if c.dir == dir {
			d.commit(c)
		}
	}
	d.prune()
}

// commitAll makes all changes and all files durable.
func (d *memDisk) commitAll() {
	for _, c := range d.pending {
		d.commit(c)
	}
	d.prune()
	d.root.walk(func(n *memNode) {
		if !n.dir {
			n.sync()
		}
	})
}

// commit makes one change durable after those before it on the same name. The
// name a file is moved away from goes only when the one it is moved to is
// durable, with the directories above; a moved directory never has two names.
func (d *memDisk) commit(c *change) {
	if c.done {
		return
	}
	c.done = true
	for _, e := range d.pending {
		if e == c {
			break
		}
		if e.dir == c.dir && e.name == c.name {
			d.commit(e)
		}
	}
	if c.pair != nil && c.node == nil {
		d.commit(c.pair)
		for above := c.pair.dir.placed; above != nil && !above.done; above = above.dir.placed {
			d.commit(above)
		}
	}
	c.apply(c.dir.durable)
	if c.pair != nil && c.node != nil && c.node.dir {
		d.commit(c.pair)
	}
}

// prune drops the durable changes from the pending ones.
func (d *memDisk) prune() {
	kept := d.pending[:0]
	for _, c := range d.pending {
		if !c.done {
			kept = append(kept, c)
		}
	}
	clear(d.pending[len(kept):])
	d.pending = kept
}
