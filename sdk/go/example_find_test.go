//go:build unix

package tend_test

import (
	"context"
	"fmt"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// exampleRun is a client, and a command that it has run to its end.
func exampleRun(ctx context.Context, line string) (c *tend.Client, p *tend.Process, stop func()) {
	url, end := exampleServer()
	c, err := tend.Dial(ctx, url, tend.Options{})
	if err != nil {
		panic(err)
	}
	if p, err = c.Spawn(ctx, tend.Shell(line)); err != nil {
		panic(err)
	}
	if _, err := p.Wait(ctx, tend.WaitOptions{}); err != nil {
		panic(err)
	}
	return c, p, func() { p.Close(); c.Close(); end() }
}

// Another program finds a process by its name, and writes to it.
func ExampleClient_Attach() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := tend.Dial(ctx, url, tend.Options{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	cmd := tend.Command("tr", "a-z", "A-Z")
	cmd.Name, cmd.StdinPipe = "shouter", true
	if _, err := c.Spawn(ctx, cmd); err != nil {
		panic(err)
	}

	p, err := c.Attach(ctx, "shouter")
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Fprintln(p.Stdin(), "hello")
	p.Stdin().Close()
	res, err := p.Wait(ctx, tend.WaitOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Print(res.Stdout)
	// Output: HELLO
}

func ExampleClient_Grep() {
	ctx := context.Background()
	c, p, stop := exampleRun(ctx, "seq 100")
	defer stop()
	for m, err := range c.Grep(ctx, process.Selector{ID: p.ID()}, view.GrepOptions{Pattern: "^.7$", Limit: 3}) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d: %s\n", m.Line, m.Text)
	}
	// Output:
	// 17: 17
	// 27: 27
	// 37: 37
}

func ExampleClient_View() {
	ctx := context.Background()
	c, p, stop := exampleRun(ctx, "seq 100")
	defer stop()
	ends := view.Options{Head: view.Amount{Lines: 2}, Tail: view.Amount{Lines: 1}}
	for it, err := range c.View(ctx, process.Selector{ID: p.ID()}, ends) {
		if err != nil {
			panic(err)
		}
		if it.Omitted != 0 {
			fmt.Printf("(%d bytes)\n", it.To-it.From)
			continue
		}
		fmt.Printf("%s", it.Text)
	}
	// Output:
	// 1
	// 2
	// (284 bytes)
	// 100
}

func ExampleProcess_Events() {
	ctx := context.Background()
	_, p, stop := exampleRun(ctx, "echo out; echo err >&2; exit 3")
	defer stop()
	for ev, err := range p.Events(ctx, process.ReadOptions{}) {
		switch {
		case err != nil:
			panic(err)
		case ev.Kind == process.EventOutput:
			fmt.Printf("%s: %s", ev.Stream, ev.Data)
		case ev.Kind == process.EventExited:
			fmt.Println(ev.Exit)
		}
	}
	// Unordered output:
	// stdout: out
	// stderr: err
	// exit status 3
}
