package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// unknown stands where this machine or this build does not say.
const unknown = "unknown"

// Build says which code produced a figure.
type Build struct {
	Commit string `json:"commit"` // revision of the main module, "unknown" in a build without version control data
	Dirty  bool   `json:"dirty"`  // built from files that differ from Commit
	Go     string `json:"go"`
	SHA256 string `json:"binary_sha256"` // of the running executable
}

// Machine says which machine produced a figure.
type Machine struct {
	Kernel     string `json:"kernel"`
	CPUModel   string `json:"cpu_model"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Memory     int64  `json:"memory_bytes"`
}

// Disk says what is under the data directory.
type Disk struct {
	FileSystem string `json:"file_system"` // name of the statfs(2) magic, in hexadecimal if it has no name here
	Device     string `json:"device"`      // what is mounted, or its major:minor number
}

// ReadBuild describes the running executable. It reads and hashes the whole file.
func ReadBuild() (Build, error) {
	b := Build{Commit: unknown, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Commit, b.Dirty = revisionOf(info.Settings)
	}
	f, err := openExecutable()
	if err != nil {
		return Build{}, fmt.Errorf("running executable: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return Build{}, fmt.Errorf("running executable: %w", err)
	}
	b.SHA256 = hex.EncodeToString(h.Sum(nil))
	return b, nil
}

func revisionOf(settings []debug.BuildSetting) (commit string, dirty bool) {
	commit = unknown
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	return commit, dirty
}
