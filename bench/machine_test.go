package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildNamesTheRunningBinary(t *testing.T) {
	b, err := ReadBuild()
	require.NoError(t, err)
	require.Equal(t, runtime.Version(), b.Go)
	image, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	sum := sha256.Sum256(image)
	require.Equal(t, hex.EncodeToString(sum[:]), b.SHA256)
	require.NotEmpty(t, b.Commit)
}

func TestCommitComesFromTheBuild(t *testing.T) {
	commit, dirty := revisionOf(nil)
	require.Equal(t, "unknown", commit)
	require.False(t, dirty)
	commit, dirty = revisionOf([]debug.BuildSetting{
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.modified", Value: "true"},
	})
	require.Equal(t, "abc123", commit)
	require.True(t, dirty)
	_, dirty = revisionOf([]debug.BuildSetting{{Key: "vcs.modified", Value: "false"}})
	require.False(t, dirty)
}
