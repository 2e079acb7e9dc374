//go:build amd64 || arm64

package netns

import "github.com/tend-run/tend/internal/core/script"

func newList(calls, text int) (*script.List, error) { return script.NewSharingList(calls, text) }
