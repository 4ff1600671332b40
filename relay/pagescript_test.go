package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/freeport"
	"colabrelay/shared/within"
)

// colabTab is a program of the scripts: a browser that shows the stand-in of Colab's page,
// whose notebook has a text cell and two code cells. It opens the URL that is its argument, or
// the first one in the file that its argument names, confirms the connection, and ends with it.
func colabTab() {
	if err := showTab(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "colab-tab:", err)
		os.Exit(1)
	}
}

func showTab(argument string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	address, err := destination(ctx, argument)
	if err != nil {
		return err
	}
	notebook := standin.NewNotebook(standin.NewCell("markdown", "# Title"), standin.NewCell("code", "1"), standin.NewCell("code", "2"))
	tab, err := standin.Dial(ctx, address, standin.Options{Notebook: notebook})
	if err != nil {
		return err
	}
	defer tab.Close()
	select {
	case <-tab.Done():
	case <-ctx.Done():
	}
	return nil
}

// awaitText waits until a file, which a program in the background writes, has a text.
func awaitText(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	ts.Check(harness.Poll(ctx, func() (bool, error) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(text), args[1]), nil
	}))
}

func setFreePort(ts *testscript.TestScript, _ bool, args []string) {
	address, err := freeport.Address()
	ts.Check(err)
	_, port, err := net.SplitHostPort(address)
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// destination returns the URL of Colab to which an argument leads.
func destination(ctx context.Context, argument string) (string, error) {
	if text, err := os.ReadFile(argument); err == nil {
		_, rest, _ := strings.Cut(string(text), "https://")
		address, _, _ := strings.Cut("https://"+rest, "\n")
		return address, nil
	}
	if strings.HasPrefix(argument, "https://") {
		return argument, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, argument, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultTransport.RoundTrip(request) // as a browser follows it, but to nobody
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	return answer.Header.Get("Location"), nil
}
