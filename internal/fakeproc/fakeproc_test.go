package fakeproc_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/fakeproc"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	processtest.Run(t, func(t *testing.T) process.Manager { return fakeproc.New(t) },
		processtest.Without(processtest.Orphans))
}
