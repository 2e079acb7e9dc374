//go:build amd64 || arm64

package netns

import "github.com/tend-run/tend/internal/core/spawn"

func newList(calls, text int) (*spawn.List, error) { return spawn.NewSharingList(calls, text) }
