package millrace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// documents are the texts whose commands, examples and test names are held to be true.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names := []string{"README.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		names = append(names, more...)
	}
	texts := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		texts[name] = string(b)
	}
	return texts
}

var block = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// blocks returns the fenced blocks of a language.
func blocks(text, language string) (found []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// TestEveryCommandOfTheDocumentsWorks runs each sh block against a broker whose data lie in
// ./data, and each go block as a program. The two make targets are only looked up: one would
// not end, the other runs this test.
func TestEveryCommandOfTheDocumentsWorks(t *testing.T) {
	dir := t.TempDir()
	build(t, filepath.Join(dir, "bin", "millrace"))
	addr := startBroker(t, dir)
	root, err := os.Getwd()
	require.NoError(t, err)
	ran := 0
	for name, text := range documents(t) {
		for _, script := range blocks(text, "sh") {
			script = regexp.MustCompile(`(?m)^make ([a-z]+).*$`).ReplaceAllString(script, "make -n -C '"+root+"' $1 > /dev/null")
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "MILLRACE_ADDR="+addr)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s:\n%s\nprinted:\n%s", name, script, out)
			ran++
		}
		for _, program := range blocks(text, "go") {
			file := filepath.Join(dir, "main.go")
			require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
			cmd := exec.Command("go", "run", file)
			cmd.Env = append(os.Environ(), "MILLRACE_ADDR="+addr)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			for _, line := range regexp.MustCompile(`(?m)^\s*fmt\.Print.* // (.*)$`).FindAllStringSubmatch(program, -1) {
				require.Contains(t, string(out), line[1], name)
			}
			ran++
		}
	}
	require.GreaterOrEqual(t, ran, 4)
}

func build(t *testing.T, to string) {
	t.Helper()
	out, err := exec.Command("go", "build", "-o", to, "./cmd/millrace").CombinedOutput()
	require.NoError(t, err, string(out))
}

// startBroker runs the built broker in dir until the test ends.
func startBroker(t *testing.T, dir string) (addr string) {
	t.Helper()
	ports := filepath.Join(dir, "ports")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "bin", "millrace"), "server", "--data-dir", "data", "--listen", "127.0.0.1:0", "--port-file", ports)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		err := cmd.Wait()
		if cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("the broker ended with %v: %s", err, log.String())
		}
	})
	var at struct{ Client string }
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(ports)
		return err == nil && json.Unmarshal(b, &at) == nil
	}, 30*time.Second, 10*time.Millisecond)
	return at.Client
}

// TestEveryTestThatTheDocumentsNameExists keeps the guarantees honest.
func TestEveryTestThatTheDocumentsNameExists(t *testing.T) {
	have := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllSubmatch(b, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	require.NoError(t, err)
	named := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
			require.True(t, have[m[1]], "%s names %s, which does not exist", name, m[1])
			named++
		}
	}
	require.Greater(t, named, 10)
}
