package process

import (
	"syscall"
	"testing"
)

func TestSignalsAreTheKernels(t *testing.T) {
	for sig := 1; sig <= 64; sig++ {
		if got, want := signalText(sig), syscall.Signal(sig).String(); got != want {
			t.Errorf("signal %d is %q; want %q", sig, got, want)
		}
		if name := SignalName(sig); name != "" && (SignalNumber(name) != sig || SignalNumber(name[3:]) != sig) {
			t.Errorf("%s is %d; want %d", name, SignalNumber(name), sig)
		}
	}
	for name, want := range map[string]syscall.Signal{"term": syscall.SIGTERM, "SIGUSR1": syscall.SIGUSR1, "sigWinch": syscall.SIGWINCH, "SYS": syscall.SIGSYS, "": 0, "SIG": 0, "NOPE": 0} {
		if got := SignalNumber(name); got != int(want) {
			t.Errorf("SignalNumber(%q) = %d; want %d", name, got, want)
		}
	}
	for _, sig := range []int{-1, 0, 32, 65} {
		if SignalName(sig) != "" {
			t.Errorf("%d is named %q", sig, SignalName(sig))
		}
	}
}
