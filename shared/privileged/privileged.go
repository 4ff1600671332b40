// Package privileged runs a test as root, on a machine that it may change: in a mount
// namespace of its own, in which every user can run the Python environments of the tests.
// It is for tests of what another user than root can do, and must not depend on what they
// test. Start reading at Run.
package privileged
