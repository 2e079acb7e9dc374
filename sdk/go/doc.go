// Package tend is the Go client of tend. It starts processes on a tend server, writes
// their input, reads their output, and finds them again, from anywhere and after any
// failure. It is used like os/exec:
//
//	c, err := tend.DialDefault(ctx, tend.Options{})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	cmd := tend.Command("npm", "run", "dev")
//	cmd.Dir = "/app"
//	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
//	p, err := c.Spawn(ctx, cmd)
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//	res, err := p.Wait(ctx, tend.WaitOptions{})
//
// # Two ways to a process
//
// [Spawn] starts a process and [Attach] finds an existing one. Both return a [Process],
// a handle with readers, a writer and Wait. [Client.Start] and [Client.Get] do the same
// through the interface [process.Manager]: they return a [process.Process], as
// [Process.Raw] does. Code written for that interface works with local and remote
// processes: readers of ordered events, waits for silence, a port or a line, retention,
// removal.
//
// # Lost connections
//
// Processes and their output live on the server, so a lost connection loses nothing,
// and the caller need not handle it. A stream of output resumes at the byte that it had
// reached. Input carries offsets, so repeated bytes are accepted once. A start carries
// an ID, so a repeated start starts one process. If the server announces that it is
// going away, the client reconnects at once, otherwise after 0.5 s, doubling to 8 s, at
// most ten times without progress ([Retry]). After a kill the client does not
// reconnect: the error says that the connection was lost. Signals and kills are never
// sent twice.
//
// # Sandboxes
//
// [Client.CreateSandbox] creates a sandbox on the server. [NewSandbox] returns one that
// is created or found at its first use. [Sandbox.Processes] and [Sandbox.Client] work
// like those of a client, for the processes inside: each call names the sandbox, and a
// call for a sandbox that does not exist reaches no process at all. [Sandbox.Files] are
// its files, and [Client.Files] those of the server's machine.
//
// # From other process managers
//
// The process manager and handle of Mastra's sandboxes, and the command handle of
// LangSmith's, use other names:
//
//	there                              here
//	---------------------------------  ------------------------------------
//	sandbox.processes                  Client.Processes, or Client itself
//	spawn(command, options)            Spawn(ctx, Shell(command))
//	  timeout, env, cwd                  Cmd.Timeout, Env, Dir
//	  onStdout, onStderr                 Cmd.Stdout, Stderr
//	  abortSignal                        Process.KillWhenDone(ctx)
//	list()                             List: pid, command, state, exit
//	get(pid)                           Get, Attach (also by id, name, tag)
//	kill(pid)                          Processes.Kill
//	release(pid)                       Processes.Release
//	executeCommand                     Processes.Run
//	extend SandboxProcessManager       embed Processes, set Ensure
//	handle.pid                         Process.PID; Process.ID is better
//	handle.command                     Process.Command
//	handle.stdout, handle.stderr       Process.Output
//	handle.exitCode                    Process.ExitCode
//	handle.reader                      Process.Stdout, Stderr
//	handle.writer                      Process.Stdin, with Cmd.StdinPipe
//	sendStdin(text), closeStdin()      Stdin().Write, Close
//	wait({onStdout, onStderr})         Wait, with Cmd.Stdout, Stderr
//	handle.kill()                      Process.Kill
//	result.success, exitCode           Result.Success, ExitCode
//	result.stdout, stderr              Result.Stdout, Stderr
//	  …truncated, …droppedBytes          Result.StdoutDropped, StderrDropped
//	result.executionTimeMs             Result.ExecutionTime
//	result.timedOut, killed            Result.TimedOut, Killed
//	commandId                          Process.ID
//	lastStdoutOffset, lastStderrOffset Output.Offset
//	reconnect()                        nothing: the client does it
//	BACKOFF_BASE, BACKOFF_MAX,         Options.Retry
//	  MAX_AUTO_RECONNECTS
//	for await (chunk of handle)        Process.Events
//	sendInput                          Process.Stdin().Write
package tend
