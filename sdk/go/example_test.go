//go:build unix

package tend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// exampleServer is the tend server of the examples: they take its URL where a
// program would take the one in TEND_URL.
func exampleServer() (url string, stop func()) {
	t := &exampleTB{}
	return serve(t, testkeeper.New(t), nil, nil).URL, t.end
}

type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTB) Helper() {}
func (t *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "tend-")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
func (t *exampleTB) Context() context.Context          { return context.Background() }
func (t *exampleTB) Output() io.Writer                 { return io.Discard }
func (t *exampleTB) Failed() bool                      { return false }
func (t *exampleTB) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleTB) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

func Example() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()

	c, err := tend.Dial(ctx, url, tend.Options{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	p, err := c.Spawn(ctx, tend.Shell("echo hello; echo oh >&2; exit 3"))
	if err != nil {
		panic(err)
	}
	defer p.Close()
	res, err := p.Wait(ctx, tend.WaitOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%q %q %d\n", res.Stdout, res.Stderr, res.ExitCode)
	// Output: "hello\n" "oh\n" 3
}

func ExampleCmd() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := tend.Dial(ctx, url, tend.Options{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	cmd := tend.Command("tr", "a-z", "A-Z")
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout = strings.NewReader("hello world\n"), os.Stdout
	p, err := c.Spawn(ctx, cmd)
	if err != nil {
		panic(err)
	}
	defer p.Close()
	res, err := p.Wait(ctx, tend.WaitOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(res.Success)
	// Output:
	// HELLO WORLD
	// true
}

// A sandbox of one's own starts when its first process does.
type lazySandbox struct {
	tend.Processes
	url    string
	client *tend.Client
}

func newLazySandbox(url string) *lazySandbox {
	s := &lazySandbox{url: url}
	s.Ensure = s.start
	return s
}

func (s *lazySandbox) start(ctx context.Context) (process.Manager, error) {
	if s.client != nil {
		return s.client, nil
	}
	fmt.Println("starting the sandbox")
	c, err := tend.Dial(ctx, s.url, tend.Options{})
	if err != nil {
		return nil, err
	}
	s.client = c
	return c, nil
}

func ExampleProcesses() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	sandbox := newLazySandbox(url)
	for _, line := range []string{"echo one", "echo two"} {
		res, err := sandbox.Run(ctx, tend.Shell(line))
		if err != nil {
			panic(err)
		}
		fmt.Print(res.Stdout)
	}
	sandbox.client.Close()
	// Output:
	// starting the sandbox
	// one
	// two
}

// A language server speaks JSON-RPC over its stdin and stdout, each message
// behind a header with its length.
func ExampleProcess_Stdin_languageServer() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := tend.Dial(ctx, url, tend.Options{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	cmd := tend.Command(os.Args[0]) // this test program plays the language server
	cmd.Env = map[string]string{"TEND_TEST_PEER": "lsp"}
	cmd.StdinPipe = true
	p, err := c.Spawn(ctx, cmd)
	if err != nil {
		panic(err)
	}
	defer p.Close()

	in, out := p.Stdin(), bufio.NewReader(p.Stdout())
	for id, method := range []string{"initialize", "textDocument/hover", "shutdown"} {
		if err := writeMessage(in, message{ID: id + 1, Method: method}); err != nil {
			panic(err)
		}
		answer, err := readMessage(out)
		if err != nil {
			panic(err)
		}
		fmt.Println(answer.ID, answer.Result)
	}
	in.Close()
	res, err := p.Wait(ctx, tend.WaitOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println("exit", res.ExitCode)
	// Output:
	// 1 initialize: done
	// 2 textDocument/hover: done
	// 3 shutdown: done
	// exit 0
}

type message struct {
	ID     int    `json:"id"`
	Method string `json:"method,omitempty"`
	Result string `json:"result,omitempty"`
}

func writeMessage(w io.Writer, m message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return err
}

func readMessage(r *bufio.Reader) (message, error) {
	var m message
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return m, err
		}
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			if length, err = strconv.Atoi(v); err != nil {
				return m, err
			}
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return m, err
	}
	return m, json.Unmarshal(body, &m)
}

// languageServer answers each request until its input ends.
func languageServer(in io.Reader, out io.Writer) {
	r := bufio.NewReader(in)
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		if err := writeMessage(out, message{ID: m.ID, Result: m.Method + ": done"}); err != nil {
			return
		}
	}
}
