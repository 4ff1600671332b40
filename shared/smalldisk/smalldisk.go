// Package smalldisk gives a test its own disk of a few MiB, which the test can fill. It is
// for tests only and must not depend on what they test. Start reading at Run; programs that
// test use Isolate and Mount.
package smalldisk
