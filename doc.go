// Package tend is the Go client of tend: it starts processes on a tend server,
// writes their input, reads their output, and finds them again, from anywhere and
// after anything. Its shape is that of os/exec:
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
// [Spawn] starts a process and [Attach] finds one that is there; both return a
// [Process], the handle with readers, a writer and Wait. [Client.Start] and
// [Client.Get] do the same in the words of [process.Manager]: they return a
// [process.Process], which [Process.Raw] is too. Code that is written for that
// interface works with the processes of this machine and with those of another:
// readers of ordered events, waits for silence, a port or a line, retention,
// removal.
//
// # Lost connections
//
// Processes live on the server and their output is kept there, so a lost
// connection loses nothing, and the caller need do nothing about it. A stream
// of output goes on from the byte that it had reached. Input carries offsets, so
// that what is sent again is accepted once. A start carries an id, so that what
// is started again starts once. When the server says that it is going away the
// client comes back at once, else after 0.5 s, doubling to 8 s, at most ten
// times without progress ([Retry]). After a kill it does not come back: the
// error says that the connection was lost. Signals and kills are never sent
// twice.
//
// # Sandboxes
//
// [Client.CreateSandbox] makes a sandbox of the server, and [NewSandbox] one that is
// made or found when it is needed first. [Sandbox.Processes] and [Sandbox.Client] are
// what those of a client are, for the processes inside: each of their calls names the
// sandbox, and one for a sandbox that there is not reaches no process at all.
//
// # From other process managers
//
// What the process manager and handle of Mastra's sandboxes, and the command
// handle of LangSmith's, call by other names:
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
