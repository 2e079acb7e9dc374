package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tend-run/tend/process"
	tend "github.com/tend-run/tend/sdk/go"
)

type forwardCmd struct {
	Sandbox string   `arg:"" complete:"sandbox" help:"The sandbox."`
	Ports   []string `arg:"" name:"port" help:"[[IP:]LOCAL:]PORT: PORT alone is the same one here, and 0:PORT picks a free one. Everybody who reaches IP reaches the port. Default: 127.0.0.1."`
}

// forwardFacts is the JSON of one port of "tend forward".
type forwardFacts struct {
	Address string `json:"address"` // here
	Port    int    `json:"port"`    // in the sandbox
}

func (c *forwardCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	var all []publication
	for _, text := range c.Ports {
		p, err := publicationOf("", text)
		if err != nil {
			return err
		}
		if !strings.Contains(text, ":") {
			p.port = p.to
		}
		all = append(all, p)
	}
	sandbox, _, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	broken := make(chan error, len(all))
	for _, p := range all {
		if err := p.listen(); err != nil {
			return fmt.Errorf("%w (0:%d picks a free port here)", err, p.to)
		}
		at := p.l.Addr().String()
		if err := inv.answer(printJSONLine, forwardFacts{at, p.to}, fmt.Sprintf("%s -> %s:%d", at, c.Sandbox, p.to)); err != nil {
			p.l.Close()
			return err
		}
		wg.Go(func() { broken <- p.serve(ctx, inv, sandbox) })
	}
	select {
	case err = <-broken:
	case <-ctx.Done():
	}
	return err
}

type sandboxURLCmd struct {
	Sandbox string `arg:"" complete:"sandbox" help:"The sandbox."`
	Port    int    `arg:"" help:"The port in it."`
}

// sandboxURLFacts is the JSON of "tend sandbox url".
type sandboxURLFacts struct {
	URL string `json:"url"`
	// Token: requests need it in the header E2b-Traffic-Access-Token. "": the port is open to all.
	Token string `json:"token"`
}

func (c *sandboxURLCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	sandbox, info, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	url, err := "", error(nil)
	if d.local {
		var status tend.Status
		if status, err = d.Status(ctx); err == nil {
			url, err = sandbox.URLAt(ctx, status.URL, c.Port)
		}
	} else {
		url, err = sandbox.URL(ctx, c.Port)
	}
	if errors.Is(err, process.ErrUnsupported) {
		return fmt.Errorf("%w; tend forward %s %d reaches the port", err, c.Sandbox, c.Port)
	}
	if err != nil {
		return err
	}
	facts := sandboxURLFacts{URL: url}
	if !info.Network.Public {
		a, err := sandbox.Access(ctx)
		if err != nil {
			return err
		}
		facts.Token = a.TrafficToken
	}
	return inv.answer(printJSON, facts, url)
}
