// Package calm keeps Go's monitor thread from running more than a role needs.
//
// While anything happens in a Go program its monitor looks every 20 µs whether a
// thread is stuck in a system call. In roles that do little but short system
// calls, and wait in between, this was a third of all they cost, and each look
// took the core from the process that the role waited for. The monitor's sleeps
// get a longer timer slack (prctl(2), PR_SET_TIMERSLACK). The keeper also gets a
// few more of what Go calls processors, so that a thread which comes back from a
// system call finds one though the monitor has not taken it from another yet.
// [Loop] keeps a thread that only waits in system calls from being taken for one
// that runs all the time.
//
// Slack is inherited by threads and by programs. Call [Thread] before a fork or
// an exec, so that programs get what was there before.
package calm
