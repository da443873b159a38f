package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// A sealed file is a small file that is replaced as a whole:
//
//	millrace <kind> <version> <bytes of body> <xxhash64 of body, 16 hex digits>\n
//	body
//
// maxSealed bounds what is read into memory; a manifest of 100,000 segments is below.
const maxSealed = 64 << 20 // bytes

// SealedError reports a sealed file that cannot be used.
type SealedError struct {
	Path string
	Err  error
}

// Error names the file.
func (e *SealedError) Error() string { return fmt.Sprintf("storage: %s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *SealedError) Unwrap() error { return e.Err }

// WriteSealed replaces the sealed file name. The file that had the name is kept as name.prev.
//
// Durability: when it returns nil the new content is durable. Whatever happens before, a reader
// finds the old or the new content under name, or the old one under name.prev.
func WriteSealed(fsys vfs.FS, name, kind string, version int, body []byte) error {
	head := fmt.Sprintf("millrace %s %d %d %016x\n", kind, version, len(body), xxhash.Sum64(body))
	tmp := name + ".tmp"
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeFile(fsys, tmp, []byte(head), body); err != nil {
		return err
	}
	if err := fsys.Rename(name, name+".prev"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// writeFile creates a file with the parts as content, durably but for its name.
func writeFile(fsys vfs.FS, name string, parts ...[]byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WritevAt(parts, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadSealed reads the sealed file name, or name.prev where name is missing because a
// replacement was interrupted.
//
// Errors: fs.ErrNotExist when neither exists; *SealedError for damage, a foreign kind, or
// ErrNewer for a version above maxVersion.
func ReadSealed(fsys vfs.FS, name, kind string, maxVersion int) (body []byte, version int, err error) {
	body, version, err = readSealed(fsys, name, kind, maxVersion)
	if errors.Is(err, fs.ErrNotExist) {
		return readSealed(fsys, name+".prev", kind, maxVersion)
	}
	return body, version, err
}

func readSealed(fsys vfs.FS, name, kind string, maxVersion int) ([]byte, int, error) {
	all, err := readFile(fsys, name)
	if err != nil {
		return nil, 0, err
	}
	head, body, ok := bytes.Cut(all, []byte{'\n'})
	f := bytes.Fields(head)
	bad := func(why string) ([]byte, int, error) {
		return nil, 0, &SealedError{name, errors.New(why)}
	}
	if !ok || len(f) != 5 || string(f[0]) != "millrace" {
		return bad("not a millrace file")
	}
	version, err := strconv.Atoi(string(f[2]))
	if err != nil || string(f[1]) != kind {
		return bad(fmt.Sprintf("is a %q file, want %q", f[1], kind))
	}
	if version > maxVersion {
		return nil, 0, &SealedError{name, fmt.Errorf("%w: format %d, this one knows %d", ErrNewer, version, maxVersion)}
	}
	if string(f[3]) != strconv.Itoa(len(body)) {
		return bad(fmt.Sprintf("body has %d bytes, header says %s", len(body), f[3]))
	}
	if sum := fmt.Sprintf("%016x", xxhash.Sum64(body)); string(f[4]) != sum {
		return bad(fmt.Sprintf("checksum %s, header says %s", sum, f[4]))
	}
	return body, version, nil
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil && size > maxSealed {
		err = fmt.Errorf("%d bytes, at most %d", size, maxSealed)
	}
	if err != nil {
		return nil, errors.Join(&SealedError{name, err}, f.Close())
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return nil, errors.Join(err, f.Close())
	}
	return b, f.Close()
}
