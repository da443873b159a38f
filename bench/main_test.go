package bench

import (
	"fmt"
	"os"
	"testing"
)

// First arguments that make the test binary another program: a per-frame broker, and
// one that claims to be.
const (
	perFrameVerb = "per-frame-broker"
	impostorVerb = "impostor"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == perFrameVerb {
		if err := PerFrameMain(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == impostorVerb {
		fmt.Println("ready")
		os.Exit(0)
	}
	os.Exit(m.Run())
}
