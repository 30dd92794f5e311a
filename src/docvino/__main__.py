from docvino.cli import main

if __name__ == "__main__":
    main()
