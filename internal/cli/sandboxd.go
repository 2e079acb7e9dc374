package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tend-run/tend/internal/protocol/sandboxd"
)

// sandboxdFlags are what "tend sandboxd" passes on to the server role.
type sandboxdFlags struct {
	RootDir           string        `name:"root-dir" default:"/workspace" placeholder:"DIR" help:"Directory that files and working directories are kept to. Made if it is missing. Default: /workspace."`
	MetadataEnvPrefix string        `name:"metadata-env-prefix" default:"SANDBOX_" placeholder:"PREFIX" help:"What /v1/metadata shows of the environment: the variables whose names begin so, but none that may be a secret. Default: SANDBOX_."`
	StreamChunkSize   int           `name:"stream-chunk-size" placeholder:"BYTES" help:"The most output of one event of Start, at most 1048576. Default: 4096."`
	HTTPIdleTimeout   time.Duration `name:"http-idle-timeout" default:"60s" placeholder:"DURATION" help:"Close connections that are idle for so long. Default: 60s."`
}

// sandboxdCmd serves what agent-sandbox's sandboxd does, with its flags.
type sandboxdCmd struct {
	sandboxdFlags
	ListenHost      string        `name:"listen-host" default:"0.0.0.0" placeholder:"HOST" help:"Address of both listeners. Nobody has to show who calls: everybody who reaches them can run programs. Default: 0.0.0.0, for the network of the pod."`
	RESTPort        int           `name:"rest-port" default:"8080" placeholder:"PORT" help:"Port for files, health and metadata. Default: 8080."`
	GRPCPort        int           `name:"grpc-port" default:"9090" placeholder:"PORT" help:"Port for processes, by gRPC without TLS. Default: 9090."`
	ShutdownTimeout time.Duration `name:"shutdown-timeout" default:"10s" placeholder:"DURATION" help:"How long an end in good order may take. It takes 2s for processes that do not end by SIGTERM, and one more for streams, so at least 4s. Default: 10s."`
	Debug           bool          `help:"Log more."`
}

const (
	leastShutdown = 4 * time.Second // what --shutdown-timeout allows at least
	mostChunk     = 1 << 20         // and --stream-chunk-size at most, as process.ReadOptions
)

// Run becomes the launcher of a daemon that serves this protocol, and others on its unix socket alone.
func (c *sandboxdCmd) Run(ctx context.Context, inv *invocation) error {
	listen, err := c.listen()
	if err != nil {
		return err
	}
	flags := c.sandboxdFlags
	flags.MetadataEnvPrefix = cmp.Or(flags.MetadataEnvPrefix, "SANDBOX_")
	if flags.RootDir, err = realDir(flags.RootDir); err != nil {
		return fmt.Errorf("--root-dir %s: %w", c.RootDir, err)
	}
	serve := serveCmd{Listen: []string{"none"}, sandboxd: &flags, extra: listen,
		serveFlags: serveFlags{Fsync: "none", SandboxProc: "own", KeepFinished: 24 * time.Hour, Debug: c.Debug}}
	return serve.Run(ctx, inv)
}

// listen checks the flags, and returns the addresses to listen on.
func (c *sandboxdCmd) listen() (all []string, err error) {
	for _, p := range []struct {
		flag string
		port int
	}{{"--rest-port", c.RESTPort}, {"--grpc-port", c.GRPCPort}} {
		if p.port < 1 || p.port > 65535 {
			return nil, usageError(fmt.Sprintf("%s %d: give 1 to 65535", p.flag, p.port))
		}
		addr, err := resolve("--listen-host", net.JoinHostPort(c.ListenHost, strconv.Itoa(p.port)))
		if err != nil {
			return nil, err
		}
		all = append(all, addr)
	}
	switch {
	case c.RESTPort == c.GRPCPort:
		return nil, usageError(fmt.Sprintf("--rest-port and --grpc-port are both %d; give two ports", c.RESTPort))
	case c.StreamChunkSize < 0 || c.StreamChunkSize > mostChunk:
		return nil, usageError(fmt.Sprintf("--stream-chunk-size %d: give 0 (the default) to %d", c.StreamChunkSize, mostChunk))
	case c.ShutdownTimeout < leastShutdown:
		return nil, usageError(fmt.Sprintf("--shutdown-timeout %v: give at least %v", c.ShutdownTimeout, leastShutdown))
	case c.HTTPIdleTimeout <= 0:
		return nil, usageError(fmt.Sprintf("--http-idle-timeout %v: give more than 0", c.HTTPIdleTimeout))
	}
	return all, nil
}

// realDir makes a directory if it is missing, and returns its path without links.
func realDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return dir, err
}

// settings are those of the face in the server role.
func (f *sandboxdFlags) settings(environ []string, rest, grpc net.Listener) *sandboxd.Settings {
	return &sandboxd.Settings{REST: rest, GRPC: grpc, Chunk: f.StreamChunkSize, Root: f.RootDir,
		MetadataPrefix: f.MetadataEnvPrefix, Environ: environ, Idle: f.HTTPIdleTimeout}
}
