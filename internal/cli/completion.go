package cli

import (
	"context"
	"embed"
	"io"
)

// The scripts know nothing of the command line: they ask "tend complete".
//
//go:embed completion/tend.bash completion/tend.zsh completion/tend.fish
var completionScripts embed.FS

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCmd) Run(_ context.Context, inv *invocation) error {
	script, err := completionScripts.ReadFile("completion/tend." + c.Shell)
	if err != nil {
		return err
	}
	_, err = inv.out.Write(script)
	return err
}

// completeCmd answers a completion script: a line for each word that fits, with
// what it is after a tab, and what the script itself has to look for after ':'.
type completeCmd struct {
	Shell string   `arg:"" help:"The shell that asks."`
	Words []string `arg:"" passthrough:"" optional:"" help:"The words after tend, to the one being typed."`
}

func (c *completeCmd) Run(_ context.Context, inv *invocation) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	if c.Shell != "zsh" { // which hands on words as the program would get them
		for i, w := range words {
			words[i] = unquoted(w)
		}
	}
	s := &suggester{inv: inv, words: words}
	_, err := io.WriteString(inv.out, s.answer())
	return err
}
