// The hostile command is an executor that attacks the relay that is paired with it. It
// seals its answers with the right key; a flag selects the attack. It serves on loopback
// until it is interrupted, and prints the command that pairs a relay.
//
//	go run ./shared/e2e/hostile -case events
//
// The attacks are listed in shared/e2e/hostilevm. The command is for tests and for trying
// a change by hand; releases do not include it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/hostilevm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	flags.SetOutput(errs)
	name := flags.String("case", "none", "the misbehaviour")
	listen := flags.String("listen", "127.0.0.1:0", "the address to serve on")
	all := flags.Bool("list", false, "list the misbehaviours and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *all {
		for _, c := range hostilevm.Cases {
			fmt.Fprintf(out, "%-16s %s\n", c.Name, c.About)
		}
		return nil
	}
	return serve(ctx, *name, *listen, out)
}

// serve serves until ctx ends.
func serve(ctx context.Context, name, listen string, out io.Writer) error {
	vm, err := hostilevm.New(name)
	if err != nil {
		return fmt.Errorf("%w; -list shows all cases", err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: vm, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Fprintln(out, "relay pair", auth.Pairing{URL: "http://" + l.Addr().String(), Secret: vm.Secret})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
