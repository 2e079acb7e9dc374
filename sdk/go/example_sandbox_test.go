//go:build unix

package tend_test

import (
	"context"
	"fmt"

	"github.com/tend-run/tend/sdk/go"
)

// A sandbox is made, or found by its name and started, when it is needed first.
func ExampleNewSandbox() {
	c, stop := exampleSandboxes()
	defer stop()
	ctx := context.Background()

	sandbox := tend.NewSandbox(c, tend.SandboxSpec{Name: "reports", Env: map[string]string{"GREETING": "hello"}})
	res, err := sandbox.Processes().Run(ctx, tend.Shell(`echo "$GREETING" > greeting; cat greeting`))
	if err != nil {
		panic(err)
	}
	fmt.Print(res.Stdout)
	info, err := sandbox.Info(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Name, info.State)
	if err := sandbox.Destroy(ctx); err != nil {
		panic(err)
	}
	// Output:
	// hello
	// reports ready
}

// exampleSandboxes is a client of a server with sandboxes, where a program would
// take the one that DialDefault returns.
func exampleSandboxes() (*tend.Client, func()) {
	t := &exampleTB{}
	return withSandboxes(t, nil), t.end
}
