package main

import _ "embed"

// usage is what executor -h prints.
//
//go:embed usage.txt
var usage string
