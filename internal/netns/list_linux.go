//go:build amd64 || arm64

package netns

import "github.com/tend-run/tend/keeper/script"

func newList(calls, text int) (*script.List, error) { return script.NewSharingList(calls, text) }
