package role

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/gomonitor"
	"github.com/tend-run/tend/internal/core/keeper"
	"github.com/tend-run/tend/internal/lib/cleansignals"
)

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("tend-keeper is started by `tend serve`")
	}
	OutliveLog()
	if args[0] == "keeper" {
		// Before anything is close-on-exec.
		if err := cleansignals.Exec(os.Args, os.Environ()); err != nil {
			fmt.Fprintf(os.Stderr, "tend: keeper: %v; processes may start with signals ignored or blocked\n", err)
		}
	}
	// What the starter left open must not reach the processes.
	closeOnExec()
	// The roles allocate next to nothing; a small heap keeps them small.
	debug.SetGCPercent(50)
	setName("tend-" + args[0])
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	stateDir := fs.String("state-dir", "", "state directory")
	listeners := fs.Int("listeners", 0, "number of listening sockets, from descriptor 3 on")
	vault := fs.Int("vault", -1, "descriptor of the anchor's vault")
	handover := fs.Int("snapshot", 0, "descriptor of what the keeper before left in this process")
	sockets := fs.String("sockets", "", "descriptors of the listening sockets")
	keep := fs.Bool("keep", false, "leave processes running at the end")
	fs.Bool("background", false, "a tend serve may take this launcher's place; read from its command line")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	if *stateDir == "" {
		return errors.New("--state-dir is missing")
	}
	if args[0] != "launcher" { // whose death is another promise
		failpoint.Open(*stateDir)
	}
	switch args[0] {
	case "launcher":
		fds, err := parseFDs(*sockets)
		if err != nil {
			return err
		}
		return anchor.RunLauncher(anchor.LauncherConfig{StateDir: *stateDir, Self: "/proc/self/exe", Listeners: fds, Keep: *keep,
			Environ: os.Environ(), Log: os.Stderr})
	case "anchor":
		var fds []int
		for i := range *listeners {
			fds = append(fds, 3+i)
		}
		return anchor.Run(anchor.Config{StateDir: *stateDir, Self: "/proc/self/exe", Listeners: fds, Environ: os.Environ(), Log: os.Stderr})
	case "keeper":
		_ = gomonitor.Monitor(2) // where it may not, all is as it was
		return keeper.Run(keeper.Config{StateDir: *stateDir, Vault: *vault, Handover: *handover, Environ: os.Environ(), Log: os.Stderr})
	}
	return fmt.Errorf("unknown role %q", args[0])
}

func parseFDs(s string) (fds []int, err error) {
	for f := range strings.SplitSeq(s, ",") {
		if f == "" {
			continue
		}
		fd, err := strconv.Atoi(f)
		if err != nil || fd < 3 {
			return nil, fmt.Errorf("--sockets has %q", f)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// setName makes the role's name the name of the process, as ps shows it: the
// program runs from a descriptor and would be called by its number. The name of
// a process is that of its first thread, which need not be ours. Without it
// nothing is wrong but the looks.
func setName(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// closeOnExec marks every descriptor but 0, 1 and 2.
func closeOnExec() {
	if unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) == nil { // Linux 5.11
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
