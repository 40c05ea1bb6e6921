// fetch URL: one request with Go's HTTP client and resolver, statically linked; exit 0 on 200.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Timeout: 15 * time.Second}
	response, err := client.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.Proto, response.StatusCode, string(body))
	if response.StatusCode != 200 {
		os.Exit(4)
	}
}
