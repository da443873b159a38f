package storage

import (
	"errors"
	"io"
	"io/fs"
	"path"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// folder is the tree below a directory, without the descriptor that vfs.FS.Sub would hold: a
// store has one for each of thousands of partitions.
type folder struct {
	vfs.FS
	dir string
}

func (f folder) at(name string) string { return path.Join(f.dir, name) }

func (f folder) Open(name string) (vfs.File, error)       { return f.FS.Open(f.at(name)) }
func (f folder) OpenWrite(name string) (vfs.File, error)  { return f.FS.OpenWrite(f.at(name)) }
func (f folder) Create(name string) (vfs.File, error)     { return f.FS.Create(f.at(name)) }
func (f folder) MkdirAll(name string) error               { return f.FS.MkdirAll(f.at(name)) }
func (f folder) Rename(from, to string) error             { return f.FS.Rename(f.at(from), f.at(to)) }
func (f folder) Remove(name string) error                 { return f.FS.Remove(f.at(name)) }
func (f folder) RemoveAll(name string) error              { return f.FS.RemoveAll(f.at(name)) }
func (f folder) ReadDir(name string) ([]vfs.Entry, error) { return f.FS.ReadDir(f.at(name)) }
func (f folder) Stat(name string) (vfs.Entry, error)      { return f.FS.Stat(f.at(name)) }
func (f folder) SyncDir(name string) error                { return f.FS.SyncDir(f.at(name)) }
func (f folder) Sub(name string) (vfs.FS, error)          { return f.FS.Sub(f.at(name)) }
func (f folder) Lock(name, by string) (io.Closer, error)  { return f.FS.Lock(f.at(name), by) }
func (f folder) Close() error                             { return nil }

// makeDir makes a directory, durably: each parent is synced after what was made in it.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := path.Dir(dir)
	if parent != "." {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}
