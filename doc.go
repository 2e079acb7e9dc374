// Package tend is the Go client of tend: it spawns processes on a tend server,
// feeds them, reads what they say, and finds them again, from anywhere and
// after anything.
//
//	c, err := tend.Dial(ctx, "http://127.0.0.1:49983", tend.Options{})
//	p, err := c.Spawn(ctx, tend.Cmd{Line: "npm run dev", OnStdout: show})
//	res, err := p.Wait(ctx)
//
// # Lost connections
//
// Processes live on the server and their output is kept there, so a lost
// connection loses nothing, and the caller need do nothing about it. A stream
// of output goes on from the byte it had reached; input carries offsets, so
// that what is sent again is taken once; a start carries an id, so that what
// is started again starts once. When the server says that it is going away the
// client comes back at once, else after 0.5 s, doubling to 8 s, at most ten
// times without progress ([Retry]). After a kill it does not come back: the
// loss is told. Signals and kills are never sent twice.
//
// # From other process managers
//
// Those who know the process manager and handle of Mastra's sandboxes, or the
// command handle of LangSmith's, find everything here:
//
//	there                              here
//	---------------------------------  ------------------------------------
//	sandbox.processes                  Client.Processes, or Client itself
//	spawn(command, options)            Spawn(ctx, Cmd{Line: command})
//	  timeout, env, cwd                  Cmd.Timeout, Env, Dir
//	  onStdout, onStderr                 Cmd.OnStdout, OnStderr
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
//	handle.writer                      Process.Stdin
//	sendStdin(text), closeStdin()      Process.SendStdin, CloseStdin
//	wait({onStdout, onStderr})         Wait(ctx, WaitOptions{…})
//	handle.kill()                      Process.Kill
//	result.success, exitCode           Result.Success, ExitCode
//	result.stdout, stderr              Result.Stdout, Stderr
//	  …truncated, …droppedBytes          Result.StdoutDropped, StderrDropped
//	result.executionTimeMs             Result.ExecutionTime
//	result.timedOut, killed            Result.TimedOut, Killed
//	commandId                          Process.ID
//	lastStdoutOffset, lastStderrOffset Output.Offset
//	reconnect()                        nothing: it is done by itself
//	BACKOFF_BASE, BACKOFF_MAX,         Options.Retry
//	  MAX_AUTO_RECONNECTS
//	for await (chunk of handle)        process.Follow(ctx, reader) of
//	                                     Process.Raw().Read
//	sendInput                          Process.SendStdin
//
// # The domain's own words
//
// [Client] implements [process.Manager], and [Process.Raw] gives
// [process.Process]: readers of ordered events, waits for silence, a port or
// a line, retention, removal. Code written for that interface works with the
// processes of this machine and with those of another.
package tend
