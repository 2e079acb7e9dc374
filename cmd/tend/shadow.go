package main

import (
	"github.com/tend-run/tend/healer/confine"
	"github.com/tend-run/tend/keeper/shadow"
	"github.com/tend-run/tend/process/box"
)

// shadowOf makes what a command of a model runs in that is for a sandbox.
func shadowOf(at confine.Sandbox) (confine.Shadow, error) {
	s, err := shadow.Make(at.StateDir, at.Scratch, box.ID(at.ID))
	if err != nil {
		return nil, err
	}
	return inShadow{s}, nil
}

type inShadow struct{ *shadow.Shadow }

func (s inShadow) Run(p confine.Program) (int, error) { return s.Shadow.Run(shadow.Program(p)) }
